"""FCAC as a scikit-learn estimator: the whole federation in one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import HasMethods, Integral, Interval, Real, StrOptions
from sklearn.utils.validation import check_is_fitted

from fcac._sites import SiteName, plain_site, site_order
from fcac._split_rate import FALSE_SPLIT_RATE
from fcac._typing import Integers
from fcac.codebook import Codebook
from fcac.federation import Server, Site
from fcac.federation.condenser import Condenser
from fcac.federation.rounds import Engine, Round, restate
from fcac.model import storage
from fcac.model.assembly import Places, condenser_of, engine_of, is_summed, server_of, trails_of
from fcac.model.calibrating import measured_novelty
from fcac.model.frames import first_rows, next_rows
from fcac.model.reading import FittedFederation
from fcac.model.site_rows import check_public_names, warn_of_open_nodes
from fcac.model.storage import Run
from fcac.nodes import Trail
from fcac.novelty import Calibration
from fcac.privacy.mechanism import AnyMechanism, NodeMechanism
from fcac.scaling import SCALES
from fcac.tables.schema import Schema


class FCAC(FittedFederation):
    """Federated continual clustering: sites condense their rows to nodes, and a server finds clusters in the nodes.

    Every site reads its own rows once and contributes a bounded number of nodes. The server clusters the nodes of all
    sites, without being told how many clusters there are. Each call of `fit` or `partial_fit` is one round; sites and
    server continue where the last round ended. Here all of it runs in one process; `fcac federation` runs the same code
    across machines.

    Parameters
    ----------
    server : str, default="communities"
        How clusters are read from the sites' nodes: "communities" of the neighbourhood graph of all sites' nodes, or
        "cae-fc", the paper's network and its connected components.
    privacy : mechanism, optional
        `fcac.privacy.NodeRelease`, `LocalNoise` or `PaperLaplace`: applied at every site before anything leaves it.
    aggregation : str, default="plain"
        With `NodeRelease`: "secure" adds up all sites' totals before anyone sees them (secure aggregation), so that the
        noise is added once and sites may be as small as they like; a tenth of them may vanish or collude, or as many
        as "secure:t=2" says. "plain": every site releases its own nodes, with its own noise.
    n_clusters : int, optional
        Number of clusters, if it is known; by default it is found. Only ``server="communities"`` takes it.
    max_nodes : int, optional
        Most nodes that a site condenses its rows to (default 4,000): more keep finer clusters apart and take longer.
        Not for ``server="cae-fc"``, where CA+ decides.
    max_server_nodes : int, optional
        Most nodes that the server reads as they are (default 16,000). If all sites together send more, it condenses
        them first, as a site does with rows, so that its cost does not grow with the number of sites. Not for
        ``server="cae-fc"``.
    forgetting : str, default="none"
        How rows lose weight with the rounds: "half-life=5" halves what a row counts every five rounds, "window=10"
        keeps the rows of the latest ten rounds only. A round in which a site has no rows counts too. "none": all rows
        count forever. ``server="cae-fc"`` and `NodeRelease` cannot forget.
    scale : {"auto", "none", "standard", "robust"}, default="auto"
        How columns are made comparable. "standard" divides each by its spread, "robust" by the width of its middle
        half, "none" takes them as they are. "auto" divides by the spread if columns are in different units, as age and
        income, and keeps columns of one unit, as coordinates, pixels, counts, or zeros and ones; `scaling_` says what
        was done. With categories (``schema``) every column is brought to one scale, whatever this says.
    false_split_rate : float, default=0.1
        How often a table without clusters may come out as several: the prior of the judge of borders. A higher rate
        finds clusters that overlap more, and more that are not there.
    site : Condenser, optional
        How sites turn rows into nodes, if it is not to be what the server asks for: an object of a subclass of
        `fcac.federation.condenser.Condenser`. Such a model cannot be saved.
    n_jobs : int, optional
        Sites working at the same time (None or -1: one per processor). The result does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the server's shuffle. The result does not depend on anything else random.

    Attributes
    ----------
    sites_ : dict of site name to Site
    server_ : Server
    n_rounds_ : int
    n_clusters_ : int
    labels_ : ndarray
        Clusters of the rows of the last call (in site order for a dict); computed when first asked for. After `fit` a
        row has the cluster of the node that counts it, except near borders between clusters, where rows are searched
        as in `predict`; the two differ for fewer than one row in a hundred.
    cluster_ids_ : ndarray of shape (n_clusters_,)
    cluster_centers_ : ndarray of shape (n_clusters_, n_features_in_)
        Mean of each cluster, in the order of `cluster_ids_`.
    scaling_ : Scaling
        How columns were made comparable: ``kind``, ``factors`` and a ``sentence`` that says why.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if the rows came with names; later tables are matched by them.
    schema_ : Schema or None
        How tables become rows, if the model was made from tables (`fcac fit`); saved, loaded and exported with it.
    guessed_ : dict of column to reason
        Why each column of a table was taken for what it was, if that was guessed; otherwise empty.
    runs_ : tuple of Run
        What each round read and left out, and how long it took, if the model was made by `fcac fit` and `fcac update`
        without `NodeRelease`; otherwise empty.

    References
    ----------
    N. Masuyama et al., "Privacy-preserving Continual Federated Clustering via Adaptive Resonance Theory".

    Examples
    --------
    >>> import numpy as np
    >>> from fcac import FCAC
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.1, size=(3000, 2)) for c in (0.0, 5.0)])
    >>> site = rng.integers(4, size=len(X))
    >>> model = FCAC(random_state=0).fit(X, groups=site)
    >>> sorted(model.sites_), model.n_rounds_
    ([0, 1, 2, 3], 1)
    >>> a, b = model.predict([[0.0, 0.0], [5.0, 5.0]])
    >>> bool(a != b)
    True
    """

    schema_: Schema | None = None
    runs_: tuple[Run, ...] = ()
    _site_column: str | None = None
    guessed_: Mapping[str, str] = MappingProxyType({})
    _trails: tuple[dict[SiteName, Trail], Places] | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "server": [str],
        "privacy": [HasMethods("perturb"), HasMethods("release"), None],
        "aggregation": [str],
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
        "max_nodes": [Interval(Integral, 2, None, closed="left"), None],
        "max_server_nodes": [Interval(Integral, 2, None, closed="left"), None],
        "forgetting": [str],
        "scale": [StrOptions(set(SCALES))],
        "false_split_rate": [Interval(Real, 0, 1, closed="neither")],
        "site": [Condenser, None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        server: str = "communities",
        privacy: AnyMechanism | None = None,
        aggregation: str = "plain",
        n_clusters: int | None = None,
        max_nodes: int | None = None,
        max_server_nodes: int | None = None,
        forgetting: str = "none",
        scale: str = "auto",
        false_split_rate: float = FALSE_SPLIT_RATE,
        site: Condenser | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.server = server
        self.privacy = privacy
        self.aggregation = aggregation
        self.n_clusters = n_clusters
        self.max_nodes = max_nodes
        self.max_server_nodes = max_server_nodes
        self.forgetting = forgetting
        self.scale = scale
        self.false_split_rate = false_split_rate
        self.site = site
        self.n_jobs = n_jobs
        self.random_state = random_state

    # ------------------------------------------------------------ learning

    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        record_ids: Any = None,
        public_groups: bool = False,
        schema: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Self:
        """Learn from these rows alone, in one round.

        Parameters
        ----------
        X : array-like of shape (n, d), or dict of site name to array
            An array or a sparse matrix of numbers; or a data frame of pandas or polars, or an Arrow table, of any
            columns: what they mean is guessed as `fcac schema` does, and `summary()` says how they were taken. Columns
            with names are matched by name.
        y : ignored
        groups : array-like of shape (n,) or str, optional
            Site of each row, or the name of the column of X that holds it and is no feature; None: one site.
        sample_weight : array-like of shape (n,), or dict of site name to weights, optional
            How many rows each row stands for; zero leaves a row out.
        record_ids : array-like of shape (n,), or dict of site name to ids, optional
            With `NodeRelease`: the id (person) of each row. The promise is then per person: the rows of a person weigh
            as much as one row, and a ledger adds up per person, at all sites together.
        public_groups : bool
            With a mechanism: True says that it is public which sites `groups` names, since these names come from the
            rows and leave without noise. Otherwise they are refused.
        schema : Schema or path, optional
            What the columns of a table mean: numbers, categories, dates and so on, with gaps; see
            :class:`fcac.tables.Schema`. Nothing is guessed then, nor under privacy. Later tables are read by it too.
        columns : dict of str to str or dict, optional
            What some columns are, where the guess is wrong: ``columns={"sex": "category", "year": "ignore"}``.

        Returns
        -------
        self
        """
        return self._play(
            X, groups, sample_weight, record_ids, public_groups, reset=True, schema=schema, columns=columns
        )

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        record_ids: Any = None,
        public_groups: bool = False,
    ) -> Self:
        """Play the next round; sites that have no rows in it, and sites that are new, are both fine.

        Parameters
        ----------
        X, y, groups, sample_weight, record_ids, public_groups
            As in :meth:`fit`.

        Returns
        -------
        self
        """
        return self._play(X, groups, sample_weight, record_ids, public_groups, reset=not hasattr(self, "server_"))

    def _play(
        self,
        X: Any,
        groups: Any,
        sample_weight: Any,
        record_ids: Any,
        public_groups: bool,
        *,
        reset: bool,
        schema: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Self:
        self._validate_params()
        check_public_names(self.privacy, groups, public_groups)
        site_column = groups if isinstance(groups, str) else None
        if reset:
            data, known, reasons = first_rows(self, X, groups, schema, columns)
        else:
            data, known, reasons = next_rows(self, X, groups), self.schema_, {}
        ids = None if record_ids is None else data.by_site(record_ids, "record_ids")
        weights = None if sample_weight is None else data.weights(sample_weight)
        if self.privacy is None and len(data) > 1 and (reset or len(self.sites_) < 2):
            warn_of_open_nodes(len(data))
        trails = trails_of(self, data, weights) if reset else None
        self._play_round(
            lambda sites, condenser: engine_of(self, sites, condenser, data, ids, weights, trails),
            data.n_features, known, reset=reset,
        )  # fmt: skip
        self._trails = None if trails is None else (trails, data.places())
        if reset:
            self.runs_ = ()
            self._keep_columns(known, data.feature_names, reasons, site_column)
        elif site_column is not None:
            self._site_column = site_column
        self._last_rows: Any = data.table
        return self

    def play_stream(
        self,
        pieces: Iterator[tuple[Any, ...]],
        n_features: int,
        feature_names: list[str] | None = None,
        *,
        schema: Schema | None = None,
    ) -> Self:
        """Play the next round from an iterator of (site, rows) pieces, for data larger than memory.

        The first call starts the model. `labels_` is not available afterwards; use `predict`.

        Parameters
        ----------
        pieces : iterator of (site, rows), or of (site, rows, record ids)
            Read once; a site's rows may come in several pieces.
        n_features : int
        feature_names : list of str, optional
        schema : Schema, optional
            What the rows came through; the first call keeps it as ``schema_``.

        Returns
        -------
        self
        """
        self._validate_params()
        started = hasattr(self, "server_")
        if started and n_features != self.n_features_in_:
            raise ValueError(f"the rows have {n_features} features, the model has {self.n_features_in_}")
        if schema is not None and started and schema != self.schema_:
            raise ValueError("schema: the model was started with another one (or none); its rows mean something else")
        if schema is not None and schema.n_features != n_features:
            raise ValueError(f"the schema has {schema.n_features} features, the rows have {n_features}")
        self._play_round(
            lambda sites, condenser: engine_of(self, sites, condenser, pieces), n_features, schema, reset=not started
        )
        if not started:
            self._keep_columns(schema, feature_names)
        self._last_rows = None
        return self

    def _play_round(
        self,
        bring: Callable[[dict[SiteName, Site], Condenser], Engine],
        n_features: int,
        schema: Schema | None,
        *,
        reset: bool,
    ) -> None:
        """Play one round, whatever brings its contributions, and only then take over what came of it.

        Parameters
        ----------
        bring : callable
            Makes the round's engine, given the sites so far and how new ones condense.
        n_features : int
        schema : Schema or None
            What the rows of a new model come through.
        reset : bool
            Whether a new model begins.
        """
        server = server_of(self, schema) if reset else self.server_
        condenser = condenser_of(self) if reset else self._site_condenser
        sites = {} if reset else dict(self.sites_)
        played = Round.play(server, bring(sites, condenser))
        self._adopt(server, sites, n_features, condenser, played.told_before)

    def _keep_columns(
        self,
        schema: Schema | None,
        names: Sequence[str] | None,
        guessed: Mapping[str, str] = MappingProxyType({}),
        site_column: str | None = None,
    ) -> None:
        """Keep what the columns of the first table mean, and how later tables are matched with them."""
        self.schema_, self.guessed_, self._site_column = schema, guessed, site_column
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _adopt(
        self, server: Server, sites: dict[SiteName, Site], n_features: int, condenser: Condenser, told: tuple[int, int]
    ) -> None:
        self.server_ = server
        self._told = told
        self._site_condenser = condenser
        self.sites_ = {name: sites[name] for name in site_order(sites)}
        if isinstance(self.privacy, NodeMechanism):
            restate(server, self.sites_)
        self.n_features_in_ = n_features
        self._last_labels: Integers | None = None
        self._calibration: tuple[Calibration | Codebook | None] | None = None
        self._measured = None
        self._trails = None

    def calibrate_novelty(
        self,
        X: Any,
        groups: Any = None,
        *,
        epsilon: float | None = None,
        record_ids: Any = None,
        public_groups: bool = False,
    ) -> Self:
        """Measure how far usual rows lie from the nodes, so that `is_novel` keeps its rate of false alarms.

        With `NodeRelease` this is a second, small release: every site counts its rows by their distance to the nearest
        node, in public bins, and adds noise; the noised counts of all sites are added up and smoothed. It is charged
        to the ledger like a round, and the rows may be those learned or fresh ones like them; docs/results/noisy.md
        says how well the rate is kept. Without privacy, sites keep a sample of their rows anyway. If it is called,
        distances are taken as they are: pass *fresh* rows, since rows that were learned lie nearer to the nodes.

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
        public_groups : bool
            As in :meth:`fit`.

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
        check_public_names(self.privacy, groups, public_groups)
        self._measured = measured_novelty(self, X, groups, epsilon, record_ids)
        return self

    def forget(self, site: Any) -> Self:
        """Drop a site: the server becomes what it would have been without it, exactly.

        Parameters
        ----------
        site : str or int

        Returns
        -------
        self
        """
        check_is_fitted(self, "server_")
        name = plain_site(site)
        if is_summed(self):
            raise ValueError(
                f"site {name!r} cannot be forgotten: under secure aggregation the server has only sums over all sites, "
                "and a summed round cannot be unsummed. Fit again without the site; that costs each other site a new "
                "round of its budget"
            )
        if self.server_.sites == [name]:
            raise ValueError(f"site {name!r} is the only one: without it there is no model")
        self._told = self.server_.readout.n_told
        self.server_.forget(name)
        self.sites_.pop(name, None)
        self.runs_ = ()  # their counts include the site's rows
        self._last_labels = self._trails = self._calibration = self._measured = None
        return self

    def fit_predict(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        public_groups: bool = False,
        schema: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Integers:
        """Play one round anew and return the cluster of each row.

        Parameters
        ----------
        X, y, groups, sample_weight, public_groups, schema, columns
            As in :meth:`fit`.

        Returns
        -------
        labels : ndarray of shape (n,)
        """
        more = {"sample_weight": sample_weight, "public_groups": public_groups, "schema": schema, "columns": columns}
        return self.fit(X, groups=groups, **more).labels_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "server_")

    # ------------------------------------------------------------ storage

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, atomically; :func:`fcac.load` reads it.

        Parameters
        ----------
        path : path-like
        """
        from fcac.model.storage import save

        save(self, path)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles carry labels, not the caller's rows; under `NodeRelease` not even labels."""
        private = isinstance(self.privacy, NodeMechanism)
        if getattr(self, "_last_rows", None) is not None and not private:
            _ = self.labels_
        state: dict[str, Any] = dict(super().__getstate__())
        if "_last_rows" in state:
            state["_last_rows"] = state["_trails"] = None
            if private:
                state["_last_labels"] = None
        return state

    def _storable_params(self) -> dict[str, Any]:
        return storage.storable_params(self)

    def _to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return storage.to_parts(self)

    def _restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        storage.restore(self, meta, arrays)
