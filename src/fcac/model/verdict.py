"""The verdict: how many clusters, how probable, what else it could be, and what to beware of.

One list of cautions, computed once from the contributions, stands at the head of everything that shows a model to
people: `summary()`, the report, `fcac inspect` and the last line of `fcac fit`. The most serious come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fcac._text import clusters_named, counted, listed
from fcac._typing import Floats, Integers
from fcac.federation import Server
from fcac.federation.replay import Material, labels_of, material, rows_by_cluster
from fcac.federation.summed_round import sites_behind
from fcac.tables.schema import Schema
from fcac.tables.shown_column import ShownColumn, columns_of, percent

# Below these a cluster, and the whole answer, are doubted.
_DOUBTED, _DOUBTED_ANSWER = 0.6, 0.5
# So few rows a column do not tell a gap from chance: forty rows of noise in four columns show gaps.
_FEW_ROWS = 60
# A cluster of fewer nodes or rows is read with care.
_FEW_NODES, _FEW_ROWS_OF_CLUSTER = 8, 30
# A cluster is of one site from this share on, and a site is displaced if most of its rows lie in such clusters.
_NEARLY_ALL, _MOSTLY = 0.9, 0.5
# Two patterns of clusters are one, moved, if they match to this share of the distance between neighbouring clusters.
_ALIKE = 0.2
# A column that makes up more of all distances decides nearly alone.
_RULES = 0.8
_MANY_NOVEL = 0.05
_MAX_LISTED = 6


@dataclass(frozen=True)
class Caution:
    """One thing to know before relying on the clusters; a `serious` one puts their number itself in doubt.

    `kind` is a short name that programs can look for, such as "few-rows".
    """

    kind: str
    text: str
    serious: bool = False


@dataclass(frozen=True)
class Alternative:
    """Another number of clusters, and how probable it is."""

    n_clusters: int
    probability: float


@dataclass(frozen=True)
class Verdict:
    """What was found, in a line, and how far to trust it.

    The most serious cautions and the most probable alternatives come first. Under privacy `n_rows` is about as many.
    `probability` is None, and `of_cluster` (how sure each cluster is) empty, where the server cannot tell.
    """

    n_clusters: int
    n_rows: int
    probability: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    cautions: tuple[Caution, ...] = ()
    of_cluster: Mapping[int, float] = field(default_factory=dict)
    asked: bool = False
    noised: bool = False

    @property
    def certain(self) -> bool:
        """Whether nothing puts the number of clusters in doubt."""
        return not any(caution.serious for caution in self.cautions)

    @property
    def headline(self) -> str:
        """One line: how many clusters, how probable, and the next best.

        >>> Verdict(3, 344, 0.91, (Alternative(2, 0.06),)).headline
        '3 clusters in 344 rows (probability 91 %; next: 2 clusters, 6.0 %)'
        >>> Verdict(1, 40).headline
        'No clusters found: the 40 rows are one group'
        >>> Verdict(6, 40, cautions=(Caution("few-rows", "Forty rows are few.", serious=True),)).headline
        'Uncertain: perhaps 6 clusters in 40 rows'
        """
        rows = ("about " if self.noised else "") + counted(self.n_rows, "row")
        if self.asked:
            said = f"{counted(self.n_clusters, 'cluster')} in {rows}, as asked"
        elif self.n_clusters <= 1:
            said = f"No clusters found: {'' if self.noised else 'the '}{rows} are one group"
        elif self.certain:
            said = f"{counted(self.n_clusters, 'cluster')} in {rows}"
        else:
            said = f"Uncertain: perhaps {counted(self.n_clusters, 'cluster')} in {rows}"
        known = [] if self.probability is None else [f"probability {percent(self.probability)}"]
        if self.alternatives:
            other = self.alternatives[0]
            known.append(f"next: {counted(other.n_clusters, 'cluster')}, {percent(other.probability)}")
        return f"{said} ({'; '.join(known)})" if known else said

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the headline and one line for each caution."""
        return [self.headline, *(f"- {caution.text}" for caution in self.cautions)]


def verdict_of(
    server: Server,
    schema: Schema | None = None,
    names: Sequence[str] | None = None,
    *,
    n_read: int = 0,
    n_dropped: int = 0,
    n_judged: int = 0,
    n_novel: int = 0,
    noisy: Sequence[int] = (),
) -> Verdict:
    """Return the verdict on what a server found.

    Of `n_read` rows, `n_dropped` were left out for gaps; of `n_judged` that were compared with the model, `n_novel` are
    unlike anything it learned. Noise that protects records makes the sizes of the clusters `noisy` uncertain.
    """
    d = server.n_features or 0
    known = material(server.latest(), d)
    labels = labels_of(server, known)
    rows = rows_by_cluster(labels, known.counts)
    of_cluster = _of_cluster(server)
    best, others = _alternatives(server)
    columns = columns_of(schema, [f"x{j}" for j in range(d)] if names is None else names) if d else []
    cautions = [
        *_about_rows(server, known, n_read, n_dropped),
        *_about_certainty(rows, of_cluster, best, others),
        *_about_sites(server, known, labels),
        *_about_columns(server, known, columns),
        *_novel(n_judged, n_novel),
        *_about_sizes(server, rows, noisy),
    ]
    ranked = sorted(cautions, key=lambda caution: not caution.serious)
    asked = server.readout.settings.n_clusters is not None
    return Verdict(len(rows), sum(rows.values()), best, others, tuple(ranked), of_cluster, asked, server.released)


# ------------------------------------------------------------ how sure


def _of_cluster(server: Server) -> dict[int, float]:
    """How sure each cluster is; nothing where the server cannot tell."""
    told = getattr(server.readout, "cluster_probability", None) or {}
    return {int(k): float(value) for k, value in told.items()}


def _alternatives(server: Server) -> tuple[float | None, tuple[Alternative, ...]]:
    """Probability of the number of clusters, and other numbers."""
    told = getattr(server.readout, "alternatives", None)
    if told is None or not server.sites:
        return None, ()
    found = [Alternative(int(other.n_clusters), float(other.probability)) for other in told()]
    own = server.n_clusters
    best = next((other.probability for other in found if other.n_clusters == own), None)
    return best, tuple(other for other in found if other.n_clusters != own)


def _about_certainty(
    rows: Mapping[int, int],
    of_cluster: Mapping[int, float],
    best: float | None,
    others: Sequence[Alternative],
) -> list[Caution]:
    told = []
    if best is not None and best < _DOUBTED_ANSWER:
        text = f"The number of clusters is uncertain ({percent(best)})"
        if others:
            likelier = "is more likely" if others[0].n_clusters == 1 else "are more likely"
            says = likelier if others[0].probability > best else "would do nearly as well"
            text += f": {counted(others[0].n_clusters, 'cluster')} {says}"
        told.append(Caution("uncertain", f"{text}.", serious=True))
    weak = sorted(k for k, value in of_cluster.items() if value < _DOUBTED)
    if weak and len(rows) > 1:
        shaky = sum(rows.get(k, 0) for k in weak) / (sum(rows.values()) or 1)
        # whether to rely on the number is told by its own probability, where that is known
        mostly = best is None and shaky >= _MOSTLY
        text = (
            f"{clusters_named(weak).capitalize()} {'is' if len(weak) == 1 else 'are'} not sure: with slightly "
            f"different rows {'it' if len(weak) == 1 else 'they'} might be split, or joined to a neighbour."
        )
        if mostly:
            text += " Do not rely on the number of clusters."
        told.append(Caution("unstable", text, serious=mostly))
    return told


# ------------------------------------------------------------ what to beware of


def _about_rows(server: Server, known: Material, n_read: int, n_dropped: int) -> list[Caution]:
    told = []
    n_rows = round(float(known.counts.sum()))
    if 0 < n_rows < _FEW_ROWS and server.n_clusters > 1:
        told.append(
            Caution(
                "few-rows",
                f"{counted(n_rows, 'row')} {'is' if n_rows == 1 else 'are'} few: below about {_FEW_ROWS} rows gaps "
                "appear by chance, and clusters with them.",
                serious=True,
            )
        )
    if n_dropped:
        of = f" of {n_read:,}" if n_read else ""
        told.append(
            Caution(
                "left-out",
                f"{counted(n_dropped, 'row')}{of} had missing values and {'was' if n_dropped == 1 else 'were'} left "
                "out, as the schema says. If values are not missing by chance, clusters can be missing, too.",
            )
        )
    return told


def _about_sites(server: Server, known: Material, labels: Integers) -> list[Caution]:
    """Clusters that come from one site, and sites that lie apart from all others."""
    latest = server.latest()
    if len(known.sites) < 2 or any(sites_behind(latest[site]) > 1 for site in known.sites):
        return []
    found, place = np.unique(labels, return_inverse=True)
    mass = np.zeros((len(found), len(known.sites)))
    np.add.at(mass, (place.ravel(), known.site), known.counts)
    of_site, of_cluster = mass.sum(axis=0), mass.sum(axis=1)
    share_of_all = of_site / max(of_site.sum(), 1.0)
    owner = mass.argmax(axis=1)
    alone = (mass.max(axis=1) >= _NEARLY_ALL * np.maximum(of_cluster, 1e-9)) & (share_of_all[owner] < _NEARLY_ALL)
    own_rows = np.bincount(owner[alone], weights=of_cluster[alone], minlength=len(known.sites))
    displaced = own_rows > _MOSTLY * np.maximum(of_site, 1e-9)
    told = []
    if displaced.any():
        centres = _standard_centres(known, labels, found)
        moved = any(
            _is_a_shifted_copy(centres[alone & (owner == s)], centres[owner != s]) for s in np.flatnonzero(displaced)
        )
        told.append(_displaced([str(known.sites[s]) for s in np.flatnonzero(displaced)], moved))
    rest = sorted(int(found[k]) for k in np.flatnonzero(alone) if not displaced[owner[k]])
    if rest:
        told.append(
            Caution(
                "single-site",
                f"{clusters_named(rest).capitalize()} {'comes' if len(rest) == 1 else 'come each'} nearly all from "
                "one site. That can be a kind of row that only this site has, or the way in which it measures.",
            )
        )
    return told


def _displaced(sites: Sequence[str], moved: bool) -> Caution:
    names = listed(list(sites), _MAX_LISTED)
    its = "its" if len(sites) == 1 else "their"
    text = f"{'Site' if len(sites) == 1 else 'Sites'} {names} {'keeps' if len(sites) == 1 else 'keep'} mostly to "
    text += f"clusters of {its} own"
    if moved:
        text += (
            ", and these look like copies of the others' clusters, moved: units, instruments or coding differ. "
            "Correct that first, then fit again."
        )
    else:
        who, measures = ("it has", "it measures") if len(sites) == 1 else ("they have", "they measure")
        text += f". These can be kinds of rows that only {who}, or the way in which {measures}."
    return Caution("displaced-site", text, serious=moved)


def _standard_centres(known: Material, labels: Integers, found: Integers) -> Floats:
    """Mean of every cluster, each feature in standard deviations of all rows; gaps are left out."""
    nodes, weights = np.nan_to_num(known.nodes), known.counts.astype(np.float64)
    spread = np.sqrt(_spread_of(known.nodes, weights / max(float(weights.sum()), 1.0)))
    means = [np.average(nodes[labels == k], axis=0, weights=np.maximum(weights[labels == k], 1e-9)) for k in found]
    centres: Floats = np.array(means) / np.where(spread > 0, spread, 1.0)
    return centres


def _is_a_shifted_copy(own: Floats, others: Floats) -> bool:
    """Whether one shift takes all of a site's clusters close to clusters of other sites."""
    if len(own) < 2 or not len(others):
        return False
    gaps = np.sqrt(((own[:, None] - own) ** 2).sum(axis=2)) + np.diag(np.full(len(own), np.inf))
    spacing = gaps.min(axis=1).mean()
    for shift in others - own[0]:
        apart = np.sqrt((((own + shift)[:, None] - others) ** 2).sum(axis=2)).min(axis=1)
        if apart.mean() < _ALIKE * spacing:
            return True
    return False


def _about_columns(server: Server, known: Material, columns: Sequence[ShownColumn]) -> list[Caution]:
    """Columns that decide nearly alone, and columns that say nothing."""
    if not len(known.nodes):
        return []
    weights = known.counts / max(float(known.counts.sum()), 1.0)
    spread = _spread_of(known.nodes, weights)
    told = []
    factors = _factors(server)
    if factors is not None and len(columns) >= 3:
        counted_spread = spread * factors**2
        of_column = np.array([counted_spread[list(column.features)].sum() for column in columns])
        top = int(np.argmax(of_column))
        if of_column[top] > _RULES * max(float(of_column.sum()), 1e-300):
            told.append(
                Caution(
                    "scaling",
                    f"{columns[top].name} makes up more than {_RULES:.0%} of all distances, because of its scale: the "
                    'other columns hardly count. If that is not meant, set scale="standard".',
                )
            )
    same = [column.name for column in columns if not spread[list(column.features)].any()]
    if same and len(known.nodes) > 1 and not server.released:
        text = f"{listed(same, _MAX_LISTED)} {'has' if len(same) == 1 else 'have'} one value only and cannot tell"
        told.append(Caution("constant", f"{text} clusters apart."))
    return told


def _spread_of(nodes: Floats, weights: Floats) -> Floats:
    """Variance of every feature over what is there; NaN is a gap."""
    there = ~np.isnan(nodes)
    own = weights[:, None] * there
    total = np.maximum(own.sum(axis=0), 1e-300)
    mean = np.where(there, nodes, 0.0).T @ weights / total
    apart = np.where(there, nodes - mean, 0.0)
    variance: Floats = weights @ apart**2 / total
    # what is left over when equal numbers are averaged is not a spread
    return np.where(variance > (1e-12 * np.maximum(np.abs(mean), 1e-300)) ** 2, variance, 0.0)


def _factors(server: Server) -> Floats | None:
    """The factor on every feature in a distance; None where columns are compared through a map, and are in balance."""
    model: Any = getattr(server.readout, "model", None)
    if model is None:
        return np.ones(server.n_features or 0)
    return None if model.feature_map is not None else np.asarray(model.feature_scales)


def _novel(n_judged: int, n_novel: int) -> list[Caution]:
    if not n_judged or n_novel / n_judged <= _MANY_NOVEL:
        return []
    return [
        Caution(
            "novel",
            f"{percent(n_novel / n_judged)} of the rows are unlike anything the model has learned. Their clusters are "
            "guesses: fit again, or look at these rows.",
            serious=True,
        )
    ]


def _about_sizes(server: Server, rows: Mapping[int, int], noisy: Sequence[int]) -> list[Caution]:
    told = []
    labels, n_nodes = np.unique(server.node_labels, return_counts=True)
    nodes_in = {int(label): int(n) for label, n in zip(labels, n_nodes, strict=True)}
    few = sorted(k for k in rows if nodes_in.get(k, 0) < _FEW_NODES or rows[k] < _FEW_ROWS_OF_CLUSTER)
    if few and len(rows) > 1:
        told.append(
            Caution(
                "small-clusters",
                f"{clusters_named(few).capitalize()} {'rests' if len(few) == 1 else 'rest'} on fewer than "
                f"{_FEW_NODES} nodes or {_FEW_ROWS_OF_CLUSTER} rows: read what is said of "
                f"{'it' if len(few) == 1 else 'them'} with care.",
            )
        )
    if noisy:
        of = clusters_named(sorted(noisy))
        text = f"The size of {of} is uncertain because of the noise that protects the records."
        told.append(Caution("noisy-sizes", text))
    return told
