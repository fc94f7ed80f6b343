"""The paper's ten data sets, by their OpenML names and ids.

:func:`load` reads ``NAME.npz`` from a directory, or asks OpenML through scikit-learn and keeps a copy. Either
way the shape and the number of rows of each class must be those of the paper, otherwise it is an error: another
version of a set would make every comparison meaningless.

Features are raw, as in the paper, with one exception that the paper makes too: :func:`scale_pixels` scales the
pixels of Fashion-MNIST from 0..255 to [-1, 1]. OpenML's ID column of MagicTelescope is left out; only without it
do the paper's numbers come out to the digit.
"""

from __future__ import annotations

import io
import os
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
from numpy.typing import NDArray

from fcac.persistence import write_atomic

Features = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Spec:
    """What a data set must look like.

    Parameters
    ----------
    name : str
        Name at OpenML, and of the .npz file.
    openml_id : int
    n_features : int
        Without columns that are left out.
    classes : dict of str to int
        Rows per class, in the order in which classes become 0, 1, ...
    n_sites : int
        Number of sites in the paper.
    paper_name : str
        Name in the paper's tables.
    left_out : tuple of str
        Columns of OpenML's table that are not features.
    pixels : bool
        Whether the values are pixels, to be scaled.
    """

    name: str
    openml_id: int
    n_features: int
    classes: dict[str, int]
    n_sites: int
    paper_name: str
    left_out: tuple[str, ...] = ()
    pixels: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.classes.values())

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)


def _digits(*counts: int) -> dict[str, int]:
    return {str(digit): count for digit, count in enumerate(counts)}


_ALL = (
    Spec("hill-valley", 1479, 100, {"0": 606, "1": 606}, 5, "Hill-Valley"),
    Spec("ozone-level-8hr", 1487, 72, {"1": 2374, "2": 160}, 5, "Ozone"),
    Spec("Bioresponse", 4134, 1776, {"0": 1717, "1": 2034}, 10, "Bioresponse"),
    Spec("phoneme", 1489, 5, {"1": 3818, "2": 1586}, 10, "Phoneme"),
    Spec("optdigits", 28, 64, _digits(554, 571, 557, 572, 568, 558, 558, 566, 554, 562), 50, "Optdigits"),
    Spec("pendigits", 32, 16, _digits(1143, 1143, 1144, 1055, 1144, 1055, 1056, 1142, 1055, 1055), 50, "Pendigits"),
    Spec("mozilla4", 1046, 5, {"0": 5108, "1": 10437}, 10, "Mozilla4"),
    Spec("MagicTelescope", 1120, 10, {"g": 12332, "h": 6688}, 50, "Magic", left_out=("ID",)),
    Spec("Fashion-MNIST", 40996, 784, _digits(*[7000] * 10), 100, "FMNIST", pixels=True),
    Spec("skin-segmentation", 1502, 3, {"1": 50859, "2": 194198}, 100, "Skin"),
)

#: The ten sets by name, in the order of the paper's tables.
SPECS: dict[str, Spec] = {spec.name: spec for spec in _ALL}


class DatasetError(ValueError):
    """A data set is missing, or is not the one the paper used."""


def find(name: str) -> Spec:
    """Return the data set with this name, OpenML's or the paper's; case does not matter.

    Examples
    --------
    >>> from fcac.paper.datasets import find
    >>> find("fmnist").name, find("Optdigits").n_sites
    ('Fashion-MNIST', 50)
    """
    for spec in _ALL:
        if name.lower() in (spec.name.lower(), spec.paper_name.lower()):
            return spec
    raise DatasetError(f"unknown data set {name!r}: choose from {', '.join(SPECS)}")


def load(
    name: str | Spec,
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> tuple[Features, Labels]:
    """Return a data set's features and classes.

    Parameters
    ----------
    name : str or Spec
        A name that :func:`find` knows, or a description of some other set.
    data_dir : path, optional
        Directory with ``NAME.npz`` (arrays ``X`` and ``y``). Without it the set comes from OpenML.
    cache_dir : path, optional
        Where to keep sets downloaded from OpenML; by default scikit-learn's data directory. A set is downloaded
        only once.

    Returns
    -------
    X : ndarray of shape (n, d), float64
        Raw features; pixels scaled to [-1, 1].
    y : ndarray of shape (n,), int64
        Classes 0, 1, ... in the order of their labels.

    Raises
    ------
    DatasetError
        If the set is missing, cannot be read, or differs from the paper's in shape or class counts.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fcac.paper.datasets import Spec, load
    >>> spec = Spec("toy", 0, 2, {"no": 2, "yes": 1}, n_sites=1, paper_name="Toy")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/toy.npz", X=[[1, 2], [3, 4], [5, 6]], y=["no", "yes", "no"])
    ...     X, y = load(spec, data_dir=folder)
    >>> X.shape, y.tolist()
    ((3, 2), [0, 1, 0])
    """
    spec = name if isinstance(name, Spec) else find(name)
    if data_dir is not None:
        X, y = _checked(*_from_npz(Path(data_dir) / f"{spec.name}.npz"), spec)
    else:
        X, y = _from_openml_or_cache(spec, cache_dir)
    return (scale_pixels(X) if spec.pixels else X), y


def scale_pixels(pixels: NDArray[Any]) -> Features:
    """Scale pixels from 0..255 to [-1, 1], as ``(p / 255 - 0.5) / 0.5``; the paper does so for Fashion-MNIST.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.datasets import scale_pixels
    >>> scale_pixels(np.array([0, 255], dtype=np.uint8)).tolist()
    [-1.0, 1.0]
    """
    scaled: Features = np.divide(pixels, 255.0, dtype=np.float64)
    scaled -= 0.5
    scaled /= 0.5
    return scaled


def _from_npz(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return arrays["X"], arrays["y"]
    except FileNotFoundError:
        raise DatasetError(f"{path} does not exist: put the set there, or omit data_dir to use OpenML") from None
    except KeyError as error:
        raise DatasetError(f"{path} must hold the arrays X and y: {error.args[0]}") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, TypeError, AttributeError) as error:
        raise DatasetError(f"{path} cannot be read as a file of plain NumPy arrays: {error}") from error


def _from_openml_or_cache(spec: Spec, cache_dir: str | os.PathLike[str] | None) -> tuple[Features, Labels]:
    from sklearn.datasets import get_data_home

    home = Path(get_data_home(cache_dir))
    kept = home / "fcac" / f"{spec.name}.npz"
    if kept.exists():
        return _checked(*_from_npz(kept), spec)
    X, y = _checked(*_from_openml(spec, home), spec)
    kept.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    # Parsing OpenML's text format takes minutes for the largest set; this copy is read in a second.
    np.savez_compressed(buffer, X=X.astype(np.uint8) if spec.pixels else X, y=y)
    write_atomic(kept, buffer.getvalue())
    return X, y


def _from_openml(spec: Spec, home: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    from sklearn.datasets import fetch_openml

    try:
        with warnings.catch_warnings():
            # scikit-learn warns at every retry and about other versions of the set; the checks below decide.
            warnings.simplefilter("ignore")
            found = fetch_openml(data_id=spec.openml_id, data_home=str(home), as_frame=False, parser=_arff_parser())
    except (URLError, TimeoutError, ConnectionError) as error:
        raise DatasetError(
            f"{spec.name} (id {spec.openml_id}) could not be downloaded from OpenML: {error}. Put {spec.name}.npz "
            "with arrays X and y into a directory and pass it (data_dir=..., on the command line --data-dir), or run "
            f"once with a connection; the set is then kept in {home / 'fcac'}"
        ) from error
    except ValueError as error:
        raise DatasetError(f"OpenML's answer for {spec.name} (id {spec.openml_id}) cannot be used: {error}") from error
    used = [i for i, feature in enumerate(found.feature_names) if feature not in spec.left_out]
    return np.asarray(found.data)[:, used], np.asarray(found.target)


def _arff_parser() -> str:
    try:
        import pandas  # noqa: F401
    except ImportError:
        return "liac-arff"  # slower, but needs nothing else
    return "pandas"


def _checked(X: NDArray[Any], y: NDArray[Any], spec: Spec) -> tuple[Features, Labels]:
    """Return features as float64 and classes as 0, 1, ...; raise an error for anything but the paper's set."""
    expected = (spec.n_rows, spec.n_features)
    if X.shape != expected or y.shape != expected[:1]:
        raise DatasetError(
            f"{spec.name} must have {expected[0]} rows and {expected[1]} features; "
            f"X has shape {X.shape} and y has shape {y.shape}"
        )
    try:
        features = np.ascontiguousarray(X, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise DatasetError(f"{spec.name}: X holds values that are not numbers: {error}") from error
    if not np.isfinite(features).all():
        raise DatasetError(f"{spec.name}: X has missing or infinite values, which the paper's set does not have")
    classes = _encoded(y, spec)
    counts = np.bincount(classes, minlength=spec.n_classes).tolist()
    if counts != list(spec.classes.values()):
        raise DatasetError(
            f"{spec.name} must have {list(spec.classes.values())} rows of the classes {list(spec.classes)}; "
            f"it has {counts}"
        )
    return features, classes


def _encoded(y: NDArray[Any], spec: Spec) -> Labels:
    """Turn labels into 0, 1, ... in the order of the spec; labels may already be encoded."""
    names, position = np.unique(y, return_inverse=True)
    texts = [_label_text(name) for name in names.tolist()]
    order = list(spec.classes)
    codes = [str(code) for code in range(spec.n_classes)]
    for known in (order, codes):
        if set(texts) <= set(known):
            return np.array([known.index(text) for text in texts], dtype=np.int64)[position]
    raise DatasetError(f"{spec.name} must have the classes {order}; it has {texts[:20]}")


def _label_text(name: Any) -> str:
    """Return one text for a label, whatever type a reader gave it: '1', 1 and 1.0 are the same class."""
    if isinstance(name, float) and name.is_integer():
        name = int(name)
    return str(name).strip().strip("'\"")
