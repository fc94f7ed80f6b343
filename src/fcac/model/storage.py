"""How a fitted `FCAC` is stored and restored."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fcac.federation import Server, Site
from fcac.federation.condenser import CA_PLUS, AgingCondenser, Condenser, ReservoirCondenser, condenser_for
from fcac.model.lineage import (
    moves_from_json,
    moves_to_json,
    told_before_latest,
)
from fcac.model.reading import FittedFederation
from fcac.model.run_log import Run
from fcac.novelty import Calibration, MeasuredNovelty
from fcac.persistence.pack_many import pack_many, unpack_many
from fcac.privacy.mechanism import NodeMechanism
from fcac.tables.schema import schema_in

_FIRST = ("server", "privacy", "n_clusters", "n_jobs", "random_state")


class Stored(FittedFederation):
    """The part of `fcac.FCAC` that turns a model into values and arrays, and back."""

    def __getstate__(self) -> dict[str, Any]:
        # copies and pickles carry labels, not the caller's rows; with NodeRelease not even labels, which were not
        # released
        private = isinstance(self.privacy, NodeMechanism)
        if getattr(self, "_last_rows", None) is not None and not private:
            _ = self.labels_
        state: dict[str, Any] = dict(super().__getstate__())
        if "_last_rows" in state:
            state["_last_rows"] = state["_trails"] = None
            if private:
                state["_last_labels"] = None
        return state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, atomically; :func:`fcac.load` reads it.

        Parameters
        ----------
        path : path-like
        """
        from fcac.model.models import save

        save(self, path)

    def _storable_params(self) -> dict[str, Any]:
        # settings that 0.1.0 did not have are stored only if they were touched, so that its files stay as they are
        usual = type(self)().get_params(deep=False)
        given = self.get_params(deep=False).items()
        params: dict[str, Any] = {name: value for name, value in given if name in _FIRST or value != usual[name]}
        if params["privacy"] is not None:
            from fcac.privacy.mechanisms import to_params

            params["privacy"] = to_params(params["privacy"])
        if not isinstance(params["random_state"], int | np.integer | None):
            params["random_state"] = None  # the seed drawn from it is stored with the server
        return params

    def _to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        check_is_fitted(self, "server_")
        if self.site is not None:
            raise ValueError("site: a model with a condenser of your own cannot be saved; leave site out")
        server_meta, server_arrays = self.server_.to_parts()
        sites_meta, sites_arrays = pack_many([site.to_parts() for site in self.sites_.values()])
        names = getattr(self, "feature_names_in_", None)
        meta: dict[str, Any] = {
            "n_features": self.n_features_in_,
            "feature_names": None if names is None else [str(name) for name in names],
            "server": server_meta,
            "sites": sites_meta,
        }
        if isinstance(self._site_condenser, ReservoirCondenser | AgingCondenser):
            meta["max_nodes"] = self._site_condenser.max_nodes  # files without it are of CA+ sites
        elif self._site_condenser != CA_PLUS:
            meta["sample_rows"] = True  # new sites keep a sample of their rows
        if self.server_.readout.moves and self._site_condenser != CA_PLUS:  # files of 0.1.0 do not have it
            meta["moves"] = moves_to_json(self.server_.readout.moves)
        if self._site_column is not None:
            meta["site_column"] = self._site_column
        if self.schema_ is not None:
            meta["schema"] = self.schema_.to_toml()
        if self.guessed_:
            meta["guessed"] = dict(self.guessed_)
        if self.runs_:  # only the commands know what was read, and files without it stay as they are
            meta["runs"] = [run.to_json() for run in self.runs_]
        arrays = {f"server.{name}": array for name, array in server_arrays.items()}
        if self._measured is not None:
            measured = self._measured
            meta["novelty"] = {"epsilon": measured.epsilon, "delta": measured.delta, "sites": measured.n_sites}
            arrays["novelty.nodes"] = measured.nodes.distances
            if measured.means is not None:
                arrays["novelty.means"] = measured.means.distances
        arrays.update({f"sites.{name}": array for name, array in sites_arrays.items()})
        return meta, arrays

    def _restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        def under(prefix: str) -> dict[str, NDArray[Any]]:
            return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}

        server = Server.from_parts(meta["server"], under("server."))
        condenser: Condenser = CA_PLUS if not meta.get("sample_rows") else condenser_for("ca-plus")
        if "max_nodes" in meta:
            condenser = condenser_for("reservoir", meta["max_nodes"], forgetting=self.forgetting, scale=self.scale)
        sites = {}
        for site_meta, site_arrays in unpack_many(meta["sites"], under("sites.")):
            site = Site.from_parts(site_meta, site_arrays, self.privacy, condenser)
            sites[site.name] = site
        if server.kind != self.server or server.n_features not in (None, meta["n_features"]):
            raise ValueError("the server in this file does not fit its parameters")
        self.schema_ = schema_in(meta)
        self.guessed_ = {str(name): str(why) for name, why in meta.get("guessed", {}).items()}
        if self.schema_ is not None and self.schema_.n_features != meta["n_features"]:
            raise ValueError("the schema in this file does not fit its nodes")
        names = meta["feature_names"]
        if names is not None:
            if not isinstance(names, list) or len(names) != meta["n_features"]:
                raise ValueError("the feature names in this file do not fit its nodes")
            self._keep_names([str(name) for name in names])
        column = meta.get("site_column")
        self._site_column = None if column is None else str(column)
        server.readout.moves = moves_from_json(meta.get("moves", []))
        self._adopt(server, sites, int(meta["n_features"]), condenser, told_before_latest(server.readout))
        if "novelty" in meta:
            cost, means = meta["novelty"], arrays.get("novelty.means")
            self._measured = MeasuredNovelty(
                Calibration(arrays["novelty.nodes"]), None if means is None else Calibration(means),
                cost["epsilon"], cost["delta"], cost["sites"],
            )  # fmt: skip
        self.runs_ = tuple(Run.from_json(values) for values in meta.get("runs", []))
        self._last_rows = None
