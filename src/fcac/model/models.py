"""Save and load fitted models: arrays and a checked header, never code."""

from __future__ import annotations

import os
import platform
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fcac import persistence
from fcac._version import __version__

_SAVABLE = {
    "CAPlus": "fcac.art.clusterers",
    "CAE": "fcac.art.clusterers",
    "CAEFC": "fcac.art.clusterers",
    "FCAC": "fcac.model.fcac",
    "Codebook": "fcac.codebook",
}


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file, atomically.

    The file is in safetensors format with a JSON header (protocol number, versions, parameters, SHA-256). A model
    that is loaded goes on learning exactly as the saved one would have.

    Parameters
    ----------
    model : CAPlus, CAE, CAEFC or FCAC
        Fitted.
    path : path-like

    Examples
    --------
    >>> import numpy as np, tempfile, os
    >>> from fcac import CAPlus, load, save
    >>> model = CAPlus().fit(np.random.default_rng(0).normal(size=(100, 2)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, os.path.join(folder, "model.fcac"))
    ...     again = load(os.path.join(folder, "model.fcac"))
    >>> bool((again.nodes_ == model.nodes_).all())
    True
    """
    name = type(model).__name__
    if name not in _SAVABLE:
        raise TypeError(f"cannot save a {name}: pass a fitted {', '.join(_SAVABLE)}")
    persistence.write_atomic(path, to_bytes(model))


def to_bytes(model: Any) -> bytes:
    """Return the byte form of a fitted model."""
    meta, arrays = model._to_parts()
    header = {
        "estimator": type(model).__name__,
        "params": _plain_params(model),
        "versions": {"fcac": __version__, "numpy": np.__version__, "python": platform.python_version()},
        **meta,
    }
    return persistence.pack("model", header, arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model written by :func:`save`.

    Parameters
    ----------
    path : path-like
        If the model has a ledger, it is looked for beside this file, and then in the current directory.

    Returns
    -------
    model : the estimator, fitted

    Raises
    ------
    ValueError
        If the file is truncated, altered, or not a model; the message says what is wrong.
    """
    try:
        model = from_bytes(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None
    ledger = getattr(getattr(model, "privacy", None), "ledger", None)
    if ledger is not None and Path(ledger.path).name == ledger.path:
        # model files name their ledger without its directory: it is beside the model, or where the program runs
        beside = Path(path).absolute().parent / ledger.path
        ledger.path = os.fspath(beside if beside.exists() else Path(ledger.path).absolute())
    return model


def from_bytes(data: bytes) -> Any:
    """Rebuild a model from its byte form."""
    meta, arrays = persistence.unpack(data, kind="model")
    name, params = meta.get("estimator"), meta.get("params")
    if not isinstance(name, str) or name not in _SAVABLE or not isinstance(params, dict):
        raise ValueError("the file names no estimator that this version of fcac knows")
    cls = getattr(import_module(_SAVABLE[name]), name)
    try:
        if name == "Codebook":
            return cls._from_parts(meta, arrays)
        if params.get("privacy") is not None:
            from fcac.privacy.mechanisms import from_params

            params["privacy"] = from_params(params["privacy"])
        model = cls(**params)
        model._validate_params()
        model._restore(meta, arrays)
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError, MemoryError, RecursionError) as error:
        raise ValueError(f"the model in this file is incomplete ({type(error).__name__}: {error})") from None
    return model


def _plain_params(model: Any) -> dict[str, Any]:
    """Parameters as JSON values; NumPy scalars become Python's."""
    plain = {}
    for name, value in model._storable_params().items():
        plain[name] = value.item() if isinstance(value, np.generic) else value
    return plain
