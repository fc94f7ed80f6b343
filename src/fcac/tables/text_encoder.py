"""Text as vectors: frozen public encoders that every site applies to its own texts, offline and always alike.

The default is WordLlama (Miller, 2024, https://github.com/dleemiller/WordLlama, MIT licence): the token embeddings of a
large language model, reduced to 256 numbers and averaged over a text. Its package carries its weights, so nothing is
downloaded. Its vectors are trained so that their first numbers are a shorter code of their own (Matryoshka
representation learning: Kusupati et al., NeurIPS 2022): ``wordllama:64`` uses 64 of them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcac.exceptions import DataError, RequestError

#: Names of callables, separated by commas, that may be used as encoders: using one runs its code.
TRUSTED = "FCAC_TRUSTED_ENCODERS"

_DEFAULT = "wordllama"
_WIDTH = 256
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_TEXTS_AT_ONCE = 512
_OWN_NAME = re.compile(r"wordllama(?::([0-9]{1,4}))?")
_CALLABLE_NAME = re.compile(r"([A-Za-z_][\w.]*:[A-Za-z_]\w*)(?::([0-9]{1,5}))?")

Matrix = NDArray[np.float32]


class Encoder(Protocol):
    """What turns texts into vectors; sites compare name, version and checksum, so that a text means the same vector."""

    name: str
    version: str
    checksum: str
    width: int

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Return one row per text; a text without any word has no vector, and its row is NaN."""
        ...


@functools.cache
def encoder(name: str = _DEFAULT) -> Encoder:
    """Return an encoder by its name.

    Parameters
    ----------
    name : str
        ``wordllama`` or ``wordllama:64`` (up to 256), or ``package.module:function:384`` for a callable of your own
        that takes a list of texts and returns a matrix of 384 columns. Naming a callable runs its code, so it must also
        be listed in the environment variable ``FCAC_TRUSTED_ENCODERS`` of the machine that uses it. Without the number
        it must be loaded to know its width, also where there are no texts, such as at a hub.

    Returns
    -------
    Encoder

    Examples
    --------
    >>> from fcac.tables.text_encoder import encoder
    >>> vectors = encoder("wordllama:64").encode(["chest pain", "pain in the chest", "broken arm"])
    >>> vectors.shape, bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
    ((3, 64), True)
    """
    if found := _OWN_NAME.fullmatch(name):
        return _WordLlama(name, int(found[1] or _WIDTH))
    if found := _CALLABLE_NAME.fullmatch(name):
        return _Callable(name, found[1], int(found[2]) if found[2] else None)
    raise RequestError(
        f"there is no encoder {name!r}: write wordllama, wordllama:64, or package.module:function for one of your own"
    )


def fingerprint(name: str) -> dict[str, str]:
    """Return what sites compare before they use an encoder: its name, version and checksum."""
    found = encoder(name)
    return {"name": found.name, "version": found.version, "checksum": found.checksum}


def width(name: str = _DEFAULT) -> int:
    """Return the length of an encoder's vectors, without loading it if its name tells."""
    if found := _OWN_NAME.fullmatch(name):
        return _checked_width(name, int(found[1] or _WIDTH))
    found = _CALLABLE_NAME.fullmatch(name)
    return int(found[2]) if found and found[2] else encoder(name).width


def encode(texts: Sequence[str], name: str = _DEFAULT) -> Matrix:
    """Return the vectors of texts, one per row."""
    return encoder(name).encode(texts)


def fingerprints(schema: Any) -> dict[str, dict[str, str]]:
    """Return the fingerprints of the encoders that a schema's text columns use, by name."""
    names = {field.encoder or _DEFAULT for field in schema.fields if getattr(field, "kind", None) == "text"}
    return {name: fingerprint(name) for name in sorted(names)}


def check_same(expected: Mapping[str, Mapping[str, str]]) -> None:
    """Raise a RequestError, with what to install, if an encoder has another :func:`fingerprint` than the study's."""
    for name, told in expected.items():
        own = fingerprint(name)
        if own["checksum"] != told.get("checksum"):
            version = re.sub(r"[^\w.+-]", "", str(told.get("version", "?")))
            package = "wordllama" if _OWN_NAME.fullmatch(name) else name.partition(":")[0].partition(".")[0]
            raise RequestError(
                f"the encoder {name} of this machine (version {own['version']}) is not the one of the study (version "
                f"{version}): its vectors would mean something else. Install the same: pip install {package}=={version}"
            )


def _checked_width(name: str, width: int) -> int:
    if not 2 <= width <= _WIDTH:
        raise RequestError(f"{name}: the vectors of wordllama have 2 to {_WIDTH} numbers")
    return width


class _WordLlama:
    """Mean of the token embeddings that the package carries, of length 1."""

    def __init__(self, name: str, width: int) -> None:
        self.name, self.width = name, _checked_width(name, width)
        # The package is not imported: it would look for its tokenizer in a wrong folder and then download it, and it
        # changes the settings of Python's logging.
        folder = _package_folder()
        self.version = importlib.metadata.version("wordllama")
        self._paths = [folder / _WEIGHTS, folder / _TOKENIZER]
        lacking = [path.name for path in self._paths if not path.is_file()]
        if lacking:
            raise RequestError(f"wordllama {self.version} has no file {lacking[0]}: pip install 'fcac[text]'")
        digest = hashlib.sha256()
        for path in self._paths:
            digest.update(path.read_bytes())
        self.checksum = digest.hexdigest()
        self._tokenizer: Any = None
        self._table: Any = None

    def encode(self, texts: Sequence[str]) -> Matrix:
        rows = np.full((len(texts), self.width), np.nan, np.float32)
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            part = [str(text) for text in texts[start : start + _TEXTS_AT_ONCE]]
            found = self._load().encode_batch(part, add_special_tokens=False)
            for place, tokens in enumerate(found, start=start):
                if texts[place].strip() and tokens.ids:
                    # text by text and in double precision: a vector must not depend on the texts around it
                    total = self._table[tokens.ids].sum(axis=0, dtype=np.float64)
                    rows[place] = total / max(float(np.linalg.norm(total)), 1e-12)
        return rows

    def words(self) -> list[str]:
        """Return the whole words of the encoder's vocabulary: public, and the same everywhere."""
        tokens = self._load().get_vocab()
        found = {token[1:] for token in tokens if re.fullmatch("\u2581[a-z]{3,}", token)}
        return sorted(found)

    def _load(self) -> Any:
        if self._tokenizer is None:
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer

            table = next(iter(load_file(self._paths[0]).values()))
            self._table = np.ascontiguousarray(table[:, : self.width], dtype=np.float32)
            tokenizer = Tokenizer.from_file(str(self._paths[1]))
            tokenizer.no_padding()
            tokenizer.no_truncation()
            self._tokenizer = tokenizer
        return self._tokenizer


class _Callable:
    """A user's own function, named by its module; whoever uses it must trust it.

    It gets one text at a time, unless its attribute `independent` is true: it declares that no vector depends on the
    other texts of a call.
    """

    def __init__(self, name: str, callable_name: str, width: int | None) -> None:
        trusted = [item.strip() for item in os.environ.get(TRUSTED, "").split(",")]
        if callable_name not in trusted:
            raise RequestError(
                f"the encoder {callable_name} is code from outside fcac that would run here and see every text: if you "
                f"trust it, set {TRUSTED}={callable_name}"
            )
        module_name, _, function = callable_name.partition(":")
        try:
            module = importlib.import_module(module_name)
            self._call: Callable[[list[str]], Any] = getattr(module, function)
        except (ImportError, AttributeError) as error:
            raise RequestError(
                f"the encoder {name} cannot be loaded ({type(error).__name__}): is it installed?"
            ) from None
        self.name = name
        self.version = str(getattr(self._call, "version", None) or getattr(module, "__version__", "0"))
        source = Path(getattr(module, "__file__", None) or "")
        own = getattr(self._call, "checksum", None)
        self.checksum = (
            str(own) if own else hashlib.sha256(source.read_bytes() if source.is_file() else b"").hexdigest()
        )
        self._width = width
        self.width = width or self._encoded(["a text"]).shape[1]
        self._width = self.width

    def encode(self, texts: Sequence[str]) -> Matrix:
        rows = np.full((len(texts), self.width), np.nan, np.float32)
        places = [place for place, text in enumerate(texts) if str(text).strip()]
        if places:
            wanted = [str(texts[place]) for place in places]
            # a vector that depended on the texts around it would carry them past what privacy counts for a row
            together = bool(getattr(self._call, "independent", False))
            rows[places] = (
                self._encoded(wanted) if together else np.concatenate([self._encoded([text]) for text in wanted])
            )
        return rows

    def _encoded(self, texts: list[str]) -> Matrix:
        found = np.asarray(self._call(texts), dtype=np.float32)
        if found.ndim != 2 or len(found) != len(texts) or self._width not in (None, found.shape[1]):
            raise DataError(
                f"the encoder {self.name} must return one row of {self._width or 'some'} numbers for each "
                f"text; for {len(texts)} texts it returned shape {found.shape}"
            )
        return found


def _package_folder() -> Path:
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise RequestError("text columns need the encoder wordllama: pip install 'fcac[text]'")
    return Path(next(iter(found.submodule_search_locations)))


def words_from_vocabulary(
    centers: ArrayLike, encoder: Encoder, vocabulary: Iterable[str] | None = None, n_words: int = 5
) -> list[list[str]]:
    """Return the words of a public vocabulary whose vectors are nearest to each centre, compared with all centres.

    No row is needed, only the centres that sites have already released, so this also works with privacy.

    Parameters
    ----------
    centers : array of shape (clusters, encoder.width)
        Mean vectors of the clusters.
    encoder : Encoder
        The one that made the vectors.
    vocabulary : iterable of str, optional
        Public words; by default those of the encoder itself, if it has any.
    n_words : int

    Returns
    -------
    list of list of str

    Examples
    --------
    >>> from fcac.tables.text_encoder import encoder, words_from_vocabulary
    >>> known = encoder("wordllama")
    >>> centers = known.encode(["chest pain and cough", "invoice for the second month"])
    >>> words_from_vocabulary(centers, known, ["lung", "tax", "heart", "payment"], n_words=2)
    [['heart', 'lung'], ['payment', 'tax']]
    """
    own = getattr(encoder, "words", None)
    if vocabulary is None and own is None:
        raise ValueError(f"the encoder {encoder.name} has no vocabulary of its own: give a list of public words")
    words = list(own() if vocabulary is None and own is not None else vocabulary or [])
    points = np.asarray(centers, dtype=np.float64)
    vectors = np.nan_to_num(encoder.encode(words).astype(np.float64))
    # what all centres share tells nothing: each is compared as it differs from their mean
    apart = points - points.mean(axis=0) if len(points) > 1 else points
    apart /= np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-12)
    scores = apart @ vectors.T
    return [[words[place] for place in np.argsort(-row, kind="stable")[:n_words]] for row in scores]
