"""Save, load, store and restore fitted models: arrays and a checked header, never code."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fcac import persistence
from fcac._version import __version__
from fcac.federation import Server, Site
from fcac.federation.condenser import CA_PLUS, AgingCondenser, Condenser, ReservoirCondenser, condenser_for
from fcac.model.lineage import (
    moves_from_json,
    moves_to_json,
    told_before_latest,
)
from fcac.novelty import Calibration, MeasuredNovelty
from fcac.persistence.format import pack_many, unpack_many
from fcac.tables.schema import schema_in

if TYPE_CHECKING:
    from fcac.model.fcac import FCAC

_FIRST = ("server", "privacy", "n_clusters", "n_jobs", "random_state")


def storable_params(model: FCAC) -> dict[str, Any]:
    """Return the settings as values for JSON."""
    # what was not touched is not stored
    usual = type(model)().get_params(deep=False)
    given = model.get_params(deep=False).items()
    params: dict[str, Any] = {name: value for name, value in given if name in _FIRST or value != usual[name]}
    if params["privacy"] is not None:
        from fcac.privacy.mechanisms import to_params

        params["privacy"] = to_params(params["privacy"])
    if not isinstance(params["random_state"], int | np.integer | None):
        params["random_state"] = None  # the seed drawn from it is stored with the server
    return params


def to_parts(model: FCAC) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return all that was learned as values for JSON and arrays."""
    check_is_fitted(model, "server_")
    if model.site is not None:
        raise ValueError("site: a model with a condenser of your own cannot be saved; leave site out")
    server_meta, server_arrays = model.server_.to_parts()
    sites_meta, sites_arrays = pack_many([site.to_parts() for site in model.sites_.values()])
    names = getattr(model, "feature_names_in_", None)
    meta: dict[str, Any] = {
        "n_features": model.n_features_in_,
        "feature_names": None if names is None else [str(name) for name in names],
        "server": server_meta,
        "sites": sites_meta,
    }
    if isinstance(model._site_condenser, ReservoirCondenser | AgingCondenser):
        meta["max_nodes"] = model._site_condenser.max_nodes  # files without it are of CA+ sites
    elif model._site_condenser != CA_PLUS:
        meta["sample_rows"] = True  # new sites keep a sample of their rows
    if model.server_.readout.moves and model._site_condenser != CA_PLUS:
        meta["moves"] = moves_to_json(model.server_.readout.moves)
    if model._site_column is not None:
        meta["site_column"] = model._site_column
    if model.schema_ is not None:
        meta["schema"] = model.schema_.to_toml()
    if model.guessed_:
        meta["guessed"] = dict(model.guessed_)
    if model.runs_:  # only the commands know what was read, and files without it stay as they are
        meta["runs"] = [run.to_json() for run in model.runs_]
    arrays = {f"server.{name}": array for name, array in server_arrays.items()}
    if model._measured is not None:
        measured = model._measured
        meta["novelty"] = {"epsilon": measured.epsilon, "delta": measured.delta, "sites": measured.n_sites}
        arrays["novelty.nodes"] = measured.nodes.distances
        if measured.means is not None:
            arrays["novelty.means"] = measured.means.distances
    arrays.update({f"sites.{name}": array for name, array in sites_arrays.items()})
    return meta, arrays


def restore(model: FCAC, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Let a model of the same settings take over :func:`to_parts`."""

    def under(prefix: str) -> dict[str, NDArray[Any]]:
        return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}

    server = Server.from_parts(meta["server"], under("server."))
    condenser: Condenser = CA_PLUS if not meta.get("sample_rows") else condenser_for("ca-plus")
    if "max_nodes" in meta:
        condenser = condenser_for("reservoir", meta["max_nodes"], forgetting=model.forgetting, scale=model.scale)
    sites = {}
    for site_meta, site_arrays in unpack_many(meta["sites"], under("sites.")):
        site = Site.from_parts(site_meta, site_arrays, model.privacy, condenser)
        sites[site.name] = site
    if server.kind != model.server or server.n_features not in (None, meta["n_features"]):
        raise ValueError("the server in this file does not fit its parameters")
    schema, names, column = schema_in(meta), meta["feature_names"], meta.get("site_column")
    if schema is not None and schema.n_features != meta["n_features"]:
        raise ValueError("the schema in this file does not fit its nodes")
    if names is not None and (not isinstance(names, list) or len(names) != meta["n_features"]):
        raise ValueError("the feature names in this file do not fit its nodes")
    model._keep_columns(
        schema,
        None if names is None else [str(name) for name in names],
        {str(name): str(why) for name, why in meta.get("guessed", {}).items()},
        None if column is None else str(column),
    )
    server.readout.moves = moves_from_json(meta.get("moves", []))
    model._adopt(server, sites, int(meta["n_features"]), condenser, told_before_latest(server.readout))
    if "novelty" in meta:
        cost, means = meta["novelty"], arrays.get("novelty.means")
        model._measured = MeasuredNovelty(
            Calibration(arrays["novelty.nodes"]), None if means is None else Calibration(means),
            cost["epsilon"], cost["delta"], cost["sites"],
        )  # fmt: skip
    model.runs_ = tuple(Run.from_json(values) for values in meta.get("runs", []))
    model._last_rows = None


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


@dataclass(frozen=True)
class Run:
    """One round, as the command that played it saw it: rows read, and rows among them that were left out.

    `dropped_for` is, for each column whose gaps make the schema drop a row, how many rows had such a gap.
    """

    round: int
    rows_read: int
    rows_dropped: int = 0
    dropped_for: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON values: what would be the same in another run of the same command."""
        return {**asdict(self), "dropped_for": dict(self.dropped_for)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Run:
        """Rebuild a run; raise ValueError if its values mean nothing."""
        counts = [values["round"], values["rows_read"], values["rows_dropped"], *values["dropped_for"].values()]
        if not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError("the counts of rows in this file are not counts")
        why = {str(name): count for name, count in values["dropped_for"].items()}
        return cls(
            round=counts[0],
            rows_read=counts[1],
            rows_dropped=counts[2],
            dropped_for=why,
        )
