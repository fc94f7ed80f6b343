"""Record ids: who a row is about, in the one form in which ids are compared and stored.

Two spellings that are taken for two people give that person twice the budget; two people who are taken for one only
share what one of them has. So ids are compared generously: case, surrounding space and Unicode variants do not matter,
and a number is a number however it is written.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

_WHOLE = re.compile(r"[+-]?\d+(\.0*)?")


def check_record_ids(record_ids: Sequence[Any]) -> list[str]:
    """Return the ids as texts; an empty id, or one that is neither number nor text, is an error.

    Parameters
    ----------
    record_ids : sequence
        One id per row.
    """
    if isinstance(record_ids, str | bytes) or not hasattr(record_ids, "__len__"):
        raise ValueError("record_ids must be a sequence with one id per row")
    return [_id_text(value) for value in record_ids]


def canonical_id(text: str) -> str:
    """Return the form in which an id is compared: "folded".

    Examples
    --------
    >>> from fcac.privacy.record_ids import canonical_id
    >>> {canonical_id(text) for text in ("7", "7.0", " 7", "007", "+7")}
    {'7'}
    >>> canonical_id("  Ann-Lee "), canonical_id("A7.50")
    ('ann-lee', 'a7.50')
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    plain = "".join(folded.split())
    if _WHOLE.fullmatch(plain):
        return str(int(plain.partition(".")[0]))
    return plain


def exact_ids(record_ids: Sequence[Any]) -> list[str]:
    """Return ids in a spelling that :func:`canonical_id` leaves alone, for a schema with ``id_form = "exact"``.

    Examples
    --------
    >>> from fcac.privacy.record_ids import canonical_id, exact_ids
    >>> len({canonical_id(text) for text in exact_ids(["Ann", "ann", "7", "007"])})
    4
    """
    return ["id:" + text.encode().hex() for text in check_record_ids(record_ids)]


def ids_in_form(record_ids: Sequence[Any], form: str) -> Sequence[Any]:
    """Return ids such that they are compared in this form of a schema (``id_form``)."""
    return exact_ids(record_ids) if form == "exact" else record_ids


def batch_mark(key: bytes, batch: Any) -> bytes | None:
    """Return a keyed mark of a batch of rows, whatever their order and whoever sends them; None for an empty batch."""
    if batch is None:
        return None
    rows = np.ascontiguousarray(batch, dtype=np.float64) + 0.0  # -0.0 becomes 0.0
    if rows.size == 0:
        return None
    as_bytes = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    return keyed(key, "batch", repr(rows.shape).encode() + np.sort(as_bytes).tobytes())


def keyed(key: bytes, use: str, data: bytes) -> bytes:
    """Return a hash that only the holder of the key can compute."""
    return hashlib.blake2b(data, key=key, digest_size=32, person=use.encode()).digest()


def _id_text(value: Any) -> str:
    """Return one spelling per id, so that 7, 7.0 and NumPy's 7 denote the same person."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    ):
        raise ValueError("record_ids has an empty id: every row needs one")
    if not isinstance(value, int | str | float | bytes):
        raise ValueError(f"record_ids must be numbers or texts, got {type(value).__name__}")
    return value.hex() if isinstance(value, bytes) else str(value)
