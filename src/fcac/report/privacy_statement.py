"""The privacy statement in plain language, derived from the contributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fcac._sites import SiteName, in_reading_order
from fcac._text import listed
from fcac.federation import Contribution
from fcac.federation.log import Entry
from fcac.privacy import mechanisms, statements
from fcac.privacy.mechanism import AnyMechanism
from fcac.privacy.zcdp import up
from fcac.tables.shown_column import ShownColumn

_MAX_BOUNDS = 20


@dataclass(frozen=True)
class SiteGroup:
    """Sites with the same privacy statement."""

    sites: list[SiteName]
    mechanism: str
    epsilon: float | None
    delta: float | None
    spent: float | None
    n_rounds: int
    unit: str | None = None

    @property
    def statement(self) -> dict[str, Any]:
        """The statement of these sites, in the form used in contributions."""
        said = {"mechanism": self.mechanism, "epsilon": self.epsilon, "delta": self.delta, "spent": self.spent}
        return said if self.unit is None else {**said, "unit": self.unit}

    @property
    def guarantee(self) -> str:
        """What the mechanism guarantees: "central", "local", "none", or "unknown" if it is not known here."""
        found = mechanisms.of_statement(self.statement)
        return ("none" if self.mechanism == "none" else "unknown") if found is None else found.guarantee

    def summary(self) -> str:
        """Return what these sites did, in a few words."""
        return statements.title(self.statement)

    def cost(self) -> str:
        """Return epsilon as stated by the sites."""
        return statements.cost(self.statement)

    def total(self) -> str:
        """Return epsilon over all rounds so far, as stated by the sites."""
        return "–" if self.spent is None else f"ε = {up(self.spent)}"


@dataclass(frozen=True)
class PrivacyStatement:
    """What the report says about privacy.

    The badge is two or three words, the warning, which may be empty, one sentence. `facts` are terms and statements
    from the mechanism's own description; `figures` are numbers and what they count.
    """

    level: str
    badge: str
    headline: str
    paragraphs: list[str]
    warning: str = ""
    figures: list[tuple[str, str]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    not_promised: list[str] = field(default_factory=list)
    groups: list[SiteGroup] = field(default_factory=list)


def make_statement(
    history: Sequence[Sequence[Entry]],
    latest: Sequence[Contribution],
    mechanism: AnyMechanism | None,
    *,
    federation: bool,
    distances: float | None = None,
    columns: Sequence[ShownColumn] = (),
) -> PrivacyStatement:
    """State what is guaranteed for the records behind these contributions, and what is not.

    The mechanism of an in-process run is quoted. `distances` is the epsilon of a release of distances for novelty after
    the latest contribution; what was spent counts an earlier one already. Bounds are told in the units of `columns`.
    """
    items = [entry for batch in history for entry in batch]
    groups = _groups(items)
    used = {group.mechanism for group in groups}
    promised = {group.guarantee for group in groups}
    described = _description(mechanism)
    common: dict[str, Any] = {
        "groups": groups,
        "facts": _facts(described, columns) + _distances(distances),
        "not_promised": _not_promised(described),
    }
    if "none" in used and (federation or len(used) > 1):
        open_sites = sorted(str(site) for g in groups if g.mechanism == "none" for site in g.sites)
        n_sites = len({item.site for item in items})
        which = "any site" if len(open_sites) == n_sites else f"{len(open_sites)} of {n_sites} sites"
        return PrivacyStatement(
            "danger",
            "None",
            f"No privacy at {which}.",
            [
                "Nodes were sent to the server as they are. A node that stands for a single row is that row, or very "
                "nearly; whoever controls the server can read it.",
                "Winning counts add up to the exact number of rows of each site.",
            ],
            figures=_single_figures([item for item in latest if _name(item) == "none"]),
            **common,
        )
    if "none" in used or not used:
        return PrivacyStatement(
            "note",
            "None",
            "No privacy was set, and none was needed: nothing left this process.",
            [
                "Sites and server ran in one process. If the same nodes were sent to a server on another machine, the "
                "figures below say how many of them would reveal single rows.",
            ],
            figures=_single_figures(latest),
            **common,
        )
    if "PaperLaplace" in used:
        return PrivacyStatement(
            "warning",
            "No promise",
            "The paper's noise was used. It is not a privacy guarantee.",
            [
                "Each site added Laplace noise scaled to the range of its own records. Since that range is computed "
                "from the records, the noise does not give ε-differential privacy for any ε; it is kept for "
                "reproducing the paper. For a guarantee, use NodeRelease.",
            ],
            figures=_paper_figures(latest),
            **common,
        )
    if "none" in promised:
        titles = sorted({group.summary() for group in groups if group.guarantee == "none"})
        return PrivacyStatement(
            "warning",
            "No promise",
            f"No privacy guarantee: {' and '.join(titles)}.",
            [
                "Sites used a mechanism that promises nothing, so what they sent can reveal as much as the rows "
                "themselves. For a guarantee, use NodeRelease.",
            ],
            figures=_single_figures(latest),
            **common,
        )
    warning = str(described.get("warning") or "")
    paragraphs = ["Everything in this report is computed from what the sites released; no row was read for it."]
    if "central" in promised:
        paragraphs.insert(
            0,
            f"What left each site is differentially private per {_unit(groups)}: adding or removing one "
            f"{_unit(groups)} changes the probability of anything the server can see by at most a factor e^ε, except "
            "with probability δ. Sizes and positions are noised: close to the true values, but not equal to them.",
        )
    if "local" in promised:
        paragraphs.insert(
            0,
            "Every record was noised before it was used: whatever a record was, any report about it is at most e^ε "
            "times as likely as if it had been any other record.",
        )
    if warning:
        paragraphs.append(warning)
    strangers = sorted(group.mechanism for group in groups if group.guarantee == "unknown")
    if strangers:
        paragraphs = [f"Sites state these mechanisms, which this report does not know: {', '.join(strangers)}."]
    level = "warning" if warning or strangers else "good"
    figures = _cost_figures(groups)
    if "central" in promised:
        figures = [_unit_figure(groups), *figures]
        paragraphs += statements.at_several_sites([item.privacy for item in latest])
    return PrivacyStatement(level, _badge(groups), _headline(groups), paragraphs, warning, figures, **common)


def _name(item: Contribution | Entry) -> str:
    return str(item.privacy.get("mechanism", "none")).split(":")[0].strip() or "none"


def _number(item: Contribution | Entry, key: str) -> float | None:
    value = item.privacy.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _groups(items: Sequence[Entry]) -> list[SiteGroup]:
    rounds: dict[SiteName, int] = {}
    newest: dict[SiteName, Entry] = {}
    for item in items:
        rounds[item.site] = rounds.get(item.site, 0) + 1
        if item.site not in newest or item.round > newest[item.site].round:
            newest[item.site] = item
    found: dict[tuple[Any, ...], list[SiteName]] = {}
    for site, item in newest.items():
        costs = [_number(item, key) for key in ("epsilon", "delta", "spent")]
        unit = item.privacy.get("unit")
        key = (_name(item), *costs, rounds[site], unit if unit in ("row", "person") else None)
        found.setdefault(key, []).append(site)
    groups = [SiteGroup(in_reading_order(sites), *key) for key, sites in found.items()]
    return sorted(groups, key=_dearness, reverse=True)


def _dearness(group: SiteGroup) -> float:
    """Return what a group of sites has spent; none that states nothing comes after one that does."""
    return float("inf") if group.spent is None and group.epsilon is None else group.spent or group.epsilon or 0.0


def _unit(groups: Sequence[SiteGroup]) -> str:
    """Return whom the promise is for at every site: a person only if all sites say so."""
    units = {group.unit for group in groups}
    return "person" if units == {"person"} else "row"


def _unit_figure(groups: Sequence[SiteGroup]) -> tuple[str, str]:
    if _unit(groups) == "person":
        return "one person", "is what is protected, with all rows of that person at a site"
    return "one row", "is what is protected: a person with several rows has less protection"


def _badge(groups: Sequence[SiteGroup]) -> str:
    costs = [group.epsilon for group in groups if group.epsilon is not None]
    return f"ε = {max(costs):g}" if costs else "Private"


def _headline(groups: Sequence[SiteGroup]) -> str:
    costs = sorted({group.cost() for group in groups if group.epsilon is not None})
    return f"Differentially private: {'; '.join(costs)}." if costs else "Differentially private."


def _cost_figures(groups: Sequence[SiteGroup]) -> list[tuple[str, str]]:
    costs = [group.epsilon for group in groups if group.epsilon is not None]
    spent = [group.spent for group in groups if group.spent is not None]
    rounds = max((group.n_rounds for group in groups), default=0)
    figures = [(f"{max(costs):g}", "largest ε of one release, as stated by the sites")] if costs else []
    if spent:
        figures.append((up(max(spent)), "largest ε that anybody has spent, over all rounds, as stated by the sites"))
    return [*figures, (str(rounds), "contributions of the most active site")]


def _single_figures(latest: Sequence[Contribution]) -> list[tuple[str, str]]:
    counts = np.concatenate([item.counts for item in latest]) if latest else np.empty(0, np.int64)
    single = int((counts == 1).sum())
    share = single / len(counts) if len(counts) else 0.0
    return [
        (f"{single:,}", f"of {len(counts):,} nodes stand for a single row ({share:.0%})"),
        (f"{int(counts.sum()):,}", "rows: the counts reveal the exact number"),
    ]


def _paper_figures(latest: Sequence[Contribution]) -> list[tuple[str, str]]:
    figures = []
    costs = [(_number(item, "epsilon"), item.n_features) for item in latest]
    totals = [epsilon * d for epsilon, d in costs if epsilon is not None]
    if totals:
        epsilon, d = next((e, d) for e, d in costs if e is not None and e * d == max(totals))
        figures.append((f"{max(totals):g}", f"nominal ε per record: ε = {epsilon:g} is spent on each of {d} features"))
    constant = sum(int((item.nodes == item.nodes[0]).all(axis=0).sum()) for item in latest if len(item.nodes) > 1)
    figures.append((f"{constant:,}", "constant columns over all sites: they are sent exactly"))
    return [*figures, *_single_figures(latest)]


def _description(mechanism: AnyMechanism | None) -> dict[str, Any]:
    if mechanism is None or not hasattr(mechanism, "describe"):
        return {}
    described: dict[str, Any] = mechanism.describe()
    return described


_TERMS = {
    "mechanism": "Mechanism",
    "unit": "What is protected",
    "adjacency": "Neighbouring data differ by",
    "epsilon": "ε of one release",
    "delta": "δ",
    "rounds": "Over rounds",
    "budget": "Budget (ε)",
    "noise": "Source of noise",
    "bounds": "Public bounds",
}


def _facts(described: dict[str, Any], columns: Sequence[ShownColumn]) -> list[tuple[str, str]]:
    facts = []
    for key, term in _TERMS.items():
        value = described.get(key)
        if value is not None:
            is_bounds = key == "bounds" and isinstance(value, list)
            facts.append((term, _bounds_in_words(value, columns) if is_bounds else _plain(value)))
    return facts


def _distances(epsilon: float | None) -> list[tuple[str, str]]:
    """Say what the contributions could not know when they were sent."""
    if epsilon is None:
        return []
    return [("Novelty", f"distances of rows to nodes were released for ε = {epsilon:g} more at each site, with noise")]


def _plain(value: Any) -> str:
    return statements.small(value) if isinstance(value, float) else str(value)


def _bounds_in_words(bounds: list[Any], columns: Sequence[ShownColumn]) -> str:
    """Return public bounds in the table's units; columns of categories have their levels instead."""
    pairs = np.array(bounds, dtype=np.float64).reshape(len(bounds), 2)
    told = []
    for column in columns:
        if column.kind in ("number", "date", "ordinal") and max(column.features) < len(pairs):
            low, high = (column.shown(float(value)) for value in column.values(pairs.T))
            told.append(f"{column.name} {low.removesuffix(f' {column.unit}')} to {high}")
        elif column.kind == "category":
            told.append(f"{column.name}: {len(column.categories)} levels")
    return listed(told, _MAX_BOUNDS) if told else f"{len(pairs)} columns"


def _not_promised(described: dict[str, Any]) -> list[str]:
    return [str(line) for line in described.get("not_promised", [])]
