"""Record ids: who a row is about, in the one form in which ids are compared and stored.

Two spellings that are taken for two people give that person twice the budget; two people who are taken for one only
share what one of them has. So ids are compared generously: case, space, invisible characters, Unicode variants and
leading zeros do not matter, and a number is a number however it is written.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,5})?")
_LETTERS = str.maketrans("0123456789", "ghijklmnop")
_LEADING_ZEROS = re.compile(r"(?<![\d.])0+(?=\d)")
#: Characters without a shape of their own that are not of Unicode's category "format".
_INVISIBLE = dict.fromkeys(
    [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10),
     *range(0xE0100, 0xE01F0)]
)  # fmt: skip
#: Texts, folded, that programs write where there is no id, or where a column holds no ids at all.
_NOBODY = frozenset(["nan", "na", "n/a", "#n/a", "<na>", "none", "null", "nil", "nat", "true", "false", "-", "--", "?"])


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


def names_somebody(value: Any) -> bool:
    """Return whether a value can be an id."""
    try:
        return bool(_id_text(value))
    except ValueError:
        return False


def canonical_id(text: str) -> str:
    """Return the form in which an id is compared: "folded".

    Examples
    --------
    >>> from fcac.privacy.record_ids import canonical_id
    >>> {canonical_id(text) for text in ("7", "7.0", " 7", "007", "+7")}
    {'7'}
    >>> {canonical_id(text) for text in ("7e0", "70e-1", "7.00", "7\\u200b", "\\u00ad7")}
    {'7'}
    >>> canonical_id("  Ann\\u2010Lee "), canonical_id("P01"), canonical_id("7.50")
    ('ann-lee', 'p1', '7.5')
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).translate(_INVISIBLE)
    plain = "".join(folded.split())
    if not (plain.isascii() and plain.isprintable()):
        kinds = {c: unicodedata.category(c) for c in plain}
        # hyphens, dashes and the minus sign are one sign
        plain = "".join(
            ["-" if kinds[c] == "Pd" or c == "\u2212" else c for c in plain if kinds[c] not in ("Cf", "Cc")]
        )
    if not _NUMBER.fullmatch(plain):
        return _LEADING_ZEROS.sub("", plain)
    with localcontext(prec=len(plain) + 1):
        number = Decimal(plain).normalize()
    return "0" if not number else f"{number:f}" if abs(number.adjusted()) < 40 else str(number).lower()


def exact_ids(record_ids: Sequence[Any]) -> list[str]:
    """Return ids in a spelling that :func:`canonical_id` leaves alone, for a schema with ``id_form = "exact"``.

    Examples
    --------
    >>> from fcac.privacy.record_ids import canonical_id, exact_ids
    >>> len({canonical_id(text) for text in exact_ids(["Ann", "ann", "7", "007", "P01", "P1"])})
    6
    """
    # letters alone: zeros that lead digits would be dropped
    return ["id:" + text.encode().hex().translate(_LETTERS) for text in check_record_ids(record_ids)]


def ids_in_form(record_ids: Sequence[Any], form: str) -> Sequence[Any]:
    """Return ids such that they are compared in this form of a schema (``id_form``)."""
    return exact_ids(record_ids) if form == "exact" else record_ids


#: A batch of more values than this is not sorted for its mark: its rows' hashes are added up instead.
MANY_VALUES = 2**22


class MultisetHash:
    """A hash of many rows in any order: the sum of the hashes of the rows (Clarke and others, 2003: MSet-Add-Hash).

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.privacy.record_ids import MultisetHash
    >>> first, second = MultisetHash(), MultisetHash()
    >>> first.add(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> second.add(np.array([[3.0, 4.0]]))
    >>> second.add(np.array([[1.0, 2.0]]))
    >>> first.digest() == second.digest()
    True
    """

    def __init__(self) -> None:
        self.n_rows = self.n_features = 0
        self._sum = np.zeros(4, dtype=np.uint64)

    def add(self, rows: Any) -> None:
        """Add rows."""
        block = _row_bytes(rows)
        if not len(block):
            return
        self.n_rows, self.n_features = self.n_rows + len(block), block.itemsize // 8
        hashes = b"".join([hashlib.blake2b(row, digest_size=32).digest() for row in block.tolist()])
        self._sum += np.frombuffer(hashes, dtype="<u8").reshape(-1, 4).sum(axis=0, dtype=np.uint64)

    def digest(self) -> bytes:
        """Return the hash of all rows added so far."""
        return repr((self.n_rows, self.n_features)).encode() + self._sum.astype("<u8").tobytes()


def batch_mark(key: bytes, batch: Any) -> bytes | None:
    """Return a keyed mark of a batch of rows, whatever their order and whoever sends them; None for an empty batch.

    Parameters
    ----------
    key : bytes
    batch : array-like of shape (n, d), or MultisetHash
        A hash stands for a batch of more than `MANY_VALUES` values.
    """
    if batch is None:
        return None
    if not isinstance(batch, MultisetHash):
        given = np.asarray(batch, dtype=np.float64)
        if given.size == 0:
            return None
        if given.size <= MANY_VALUES:
            return keyed(key, "batch", repr(given.shape).encode() + np.sort(_row_bytes(given)).tobytes())
        batch = MultisetHash()
        for start in range(0, len(given), 2**16):
            batch.add(given[start : start + 2**16])
    return keyed(key, "batch", batch.digest()) if batch.n_rows else None


def _row_bytes(rows: Any) -> Any:
    """Return every row as one value of bytes."""
    block = np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # -0.0 becomes 0.0
    return block.view(np.dtype((np.void, block.itemsize * block.shape[1]))).ravel()


def keyed(key: bytes, use: str, data: bytes) -> bytes:
    """Return a hash that only the holder of the key can compute."""
    return hashlib.blake2b(data, key=key, digest_size=32, person=use.encode()).digest()


def _id_text(value: Any) -> str:
    """Return one spelling per id, so that 7, 7.0 and NumPy's 7 denote the same person."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool):
        raise ValueError("record_ids has true or false for an id: name the column that tells people apart")
    if value is None or (isinstance(value, float | Decimal) and not math.isfinite(value)):
        raise ValueError("record_ids has an empty id: every row needs one")
    if not isinstance(value, int | str | float | bytes | Decimal):
        raise ValueError(f"record_ids must be numbers or texts, got {type(value).__name__}")
    text = value.hex() if isinstance(value, bytes) else str(value)
    folded = canonical_id(text)
    if not folded:
        raise ValueError("record_ids has an empty id: every row needs one")
    if folded in _NOBODY:
        raise ValueError(
            f"record_ids has {folded!r} for an id, which programs write where there is none: every row needs the id of "
            "its person"
        )
    return text
