"""Novelty measured on rows that are at hand: the part of `fcac.FCAC` that learns how far usual rows lie from nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fcac._sites import SiteName
from fcac._typing import Floats
from fcac.codebook import Codebook
from fcac.federation import Site
from fcac.federation.rounds import restate
from fcac.model.columns import warn_of_names
from fcac.model.frames import are_tables, encoded
from fcac.model.reading import FittedFederation
from fcac.model.site_rows import SiteRows
from fcac.novelty import MeasuredNovelty
from fcac.privacy.account import Account
from fcac.privacy.mechanism import NodeMechanism
from fcac.privacy.released_state import ReleasedState


class Calibrated(FittedFederation):
    """The part of `fcac.FCAC` that measures novelty on rows given to it."""

    def calibrate_novelty(
        self,
        X: Any,
        groups: Any = None,
        *,
        epsilon: float | None = None,
        record_ids: Any = None,
    ) -> Self:
        """Measure how far usual rows lie from the nodes, so that `is_novel` keeps its rate of false alarms.

        With `NodeRelease` this is a second, small release: every site counts its rows by their distance to the nearest
        node, in public bins, and adds noise; the noised counts of all sites are added up and smoothed. It is charged
        to the ledger like a round, and the rows may be those learned or fresh ones like them. With 10,000 rows in all
        at up to five sites and ``epsilon=0.5``, 0.6 to 1.6 % of fresh rows were called novel at ``alpha=0.01``;
        docs/results/noisy.md has the figures, and those of more sites and fewer rows, which are worse.

        Without privacy, sites keep a sample of their rows anyway, and this is not needed. If it is called, distances
        are taken as they are, and replace those of the samples: pass *fresh* rows, since rows that were learned lie
        nearer to the nodes than others.

        What was measured holds until the model learns or forgets something; it is saved and exported with the model.

        Parameters
        ----------
        X : array-like of shape (n, d), or dict of site name to array
            Usual rows, in the forms that :meth:`fit` takes; tables are read by the model's columns and schema.
        groups : array-like of shape (n,) or str, optional
            Site of each row, or the name of the column of X that holds it; None: one site.
        epsilon : float, optional
            With `NodeRelease`: what this release costs each site, at the delta of the mechanism.
        record_ids : array-like of shape (n,), or dict of site name to ids, optional
            With `NodeRelease`: the id (person) of each row. The rows of a person weigh as much as one row.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from fcac import FCAC
        >>> from fcac.privacy import NodeRelease
        >>> from fcac.privacy.samplers import InsecureTestSampler  # repeatable, for this example only
        >>> rng = np.random.default_rng(0)
        >>> X, fresh = rng.normal(size=(2, 5000, 2))
        >>> privacy = NodeRelease(2.0, bounds=[[-5, 5], [-5, 5]], sampler=InsecureTestSampler(0))
        >>> model = FCAC(privacy=privacy, random_state=0).fit(X).calibrate_novelty(X, epsilon=0.5)
        >>> bool(0.003 < model.is_novel(fresh, alpha=0.01).mean() < 0.03)
        True
        """
        check_is_fitted(self, "server_")
        data = self._usual_rows(X, groups)
        ids = None if record_ids is None else data.by_site(record_ids, "record_ids")
        if isinstance(self.privacy, NodeMechanism):
            measured = self._released_distances(data, ids, epsilon)
        else:
            measured = self._plain_distances(data, epsilon, record_ids is not None)
        self._measured = measured
        return self

    def _usual_rows(self, X: Any, groups: Any) -> SiteRows:
        """Read the rows as `partial_fit` does, and tables of a schema's columns too."""
        names, schema = getattr(self, "feature_names_in_", None), self.schema_
        listed = None if names is None else [str(name) for name in names]
        if schema is not None:
            if are_tables(X):
                X, groups = encoded(X, groups, schema)
            elif not schema.allows_gaps:
                schema = None
        data = SiteRows(X, groups, self, listed, schema)
        if schema is None:
            warn_of_names(self, data.feature_names)
        if data.n_features != self.n_features_in_:
            raise ValueError(
                f"X has {data.n_features} features, but FCAC is expecting {self.n_features_in_} features as input."
            )
        return data

    def _plain_distances(self, data: SiteRows, epsilon: float | None, has_units: bool) -> MeasuredNovelty:
        if self.privacy is not None:
            raise ValueError(
                f"calibrate_novelty: with {type(self.privacy).__name__} no row may be read without its noise, and rows "
                "with noise say little about others; use score_samples on rows that you may look at"
            )
        if epsilon is not None:
            raise ValueError("epsilon: this model has no privacy mechanism, and distances are taken without noise")
        if has_units:
            raise ValueError("record_ids are for NodeRelease: leave them out")
        rows = np.concatenate([np.array(block) for site in data for block in data[site].blocks()])
        nodes = self.server_.readout.export(True).calibrated(rows).calibration
        means = self.server_.export().calibrated(rows).calibration
        assert nodes is not None
        return MeasuredNovelty(nodes, means)

    def _released_distances(
        self,
        data: SiteRows,
        record_ids: Mapping[SiteName, Sequence[Any]] | None,
        epsilon: float | None,
    ) -> MeasuredNovelty:
        from fcac.privacy.distance_release import release_for_sites
        from fcac.privacy.mechanisms.node_release import NodeRelease

        mechanism = self.privacy
        if not isinstance(mechanism, NodeRelease):
            raise ValueError(f"calibrate_novelty needs NodeRelease, not {type(mechanism).__name__}")
        if self.aggregation != "plain":
            raise ValueError(
                "calibrate_novelty: every site would release counts of its own, and under secure aggregation nobody "
                "may see those of a single site. Each site can measure for itself: model.export().calibrated(rows)"
            )
        if epsilon is None:
            raise ValueError(
                "epsilon: say what the release of distances may cost, for instance calibrate_novelty(X, epsilon=0.5); "
                "it comes on top of what the nodes have cost"
            )
        # nodes with test noise count as not released, and protect nobody anyway
        if not self.server_.released and mechanism.sampler.secure:
            raise ValueError("calibrate_novelty: the server holds nodes that were not released with privacy")
        book: Codebook = self.server_.readout.export(True)
        rows = {name: _joined(data[name], data.n_features) for name in data}
        accounts = {name: _account(self.sites_.get(name)) for name in data}
        receipts = {name: () if account is None else account.receipts for name, account in accounts.items()}
        calibration, charges = release_for_sites(mechanism, book, rows, epsilon, record_ids, receipts)
        for name, account in accounts.items():
            if account is not None:
                self.sites_[name].note_cost(account.after(*charges[name]))
        restate(self.server_, self.sites_)
        return MeasuredNovelty(calibration, None, float(epsilon), mechanism.delta, len(rows))


def _joined(rows: Any, n_features: int) -> Floats:
    return np.concatenate([np.empty((0, n_features)), *rows.blocks()])


def _account(site: Site | None) -> Account | None:
    """What a site has spent so far; its receipts show whether a ledger is the right one. None for an unknown site."""
    state = None if site is None else site.model
    return state.account if isinstance(state, ReleasedState) else None
