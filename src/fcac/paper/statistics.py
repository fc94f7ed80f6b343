"""Which differences between methods are significant: average ranks, Friedman's and Nemenyi's tests, diagrams.

The methods are ranked within every block (1 is best), and the ranks are averaged over blocks. Friedman's test asks
whether the methods differ at all. If they do, Nemenyi's test asks which pairs differ: those whose average ranks are
farther apart than the critical difference. This is the procedure of Demšar (2006), which the paper follows.

What counts as a block matters. The paper takes every pair of metric and data set. Three metrics on one set are not
independent, however, so this overstates significance; :func:`compare_by_metric` does it both ways, and
:func:`surviving_differences` says which conclusions hold in both.

Scores are given as ``{block: {method: score}}`` or as a long table of ``(method, block, score)``; higher is better.

References
----------
J. Demšar. Statistical Comparisons of Classifiers over Multiple Data Sets. Journal of Machine Learning Research 7,
1-30, 2006.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fcac.paper import check_extra
from fcac.persistence import write_atomic

Scores = Mapping[Any, Mapping[str, float]] | Iterable[tuple[str, Hashable, float]]

METRICS = ("ARI", "AMI", "NMI")
SCENARIOS = ("iid", "non-iid")

# The blue of Okabe and Ito's palette, which can be told from grey and black with any kind of colour vision.
_INK, _STEM, _BAR = "#1a1a1a", "#6e6e6e", "#0072B2"


@dataclass(frozen=True)
class Comparison:
    """The outcome of a comparison of methods over blocks.

    Attributes
    ----------
    methods : tuple of str
        Best average rank first.
    ranks : tuple of float
        Average rank of each method, in that order.
    n_blocks : int
    alpha : float
        Level of significance.
    friedman_statistic, friedman_p : float
        Friedman's chi-squared and its p-value.
    critical_difference : float
        Difference of average ranks beyond which Nemenyi's test calls two methods different.
    p_values : ndarray of shape (k, k)
        Nemenyi's, in the order of ``methods``.
    """

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    n_blocks: int
    alpha: float
    friedman_statistic: float
    friedman_p: float
    critical_difference: float
    p_values: NDArray[np.float64]

    @property
    def any_difference(self) -> bool:
        """Whether Friedman's test rejects the hypothesis that all methods are alike."""
        return self.friedman_p < self.alpha

    def differ(self, first: str, second: str) -> bool:
        """Return whether two methods differ significantly; never if Friedman's test finds no difference at all."""
        i, j = self.methods.index(first), self.methods.index(second)
        return self.any_difference and bool(self.p_values[i, j] < self.alpha)

    @cached_property
    def differences(self) -> list[tuple[str, str]]:
        """All pairs (better, worse) that differ significantly."""
        k = len(self.methods)
        pairs = [(self.methods[i], self.methods[j]) for i in range(k) for j in range(i + 1, k)]
        return [pair for pair in pairs if self.differ(*pair)]

    @cached_property
    def groups(self) -> list[tuple[str, ...]]:
        """The bars of a critical-difference diagram: maximal runs of methods of which no two differ."""
        found: list[tuple[str, ...]] = []
        reached = 0
        for i, first in enumerate(self.methods):
            stop = max(j for j, other in enumerate(self.methods) if j >= i and not self.differ(first, other)) + 1
            if stop - i > 1 and stop > reached:
                found.append(self.methods[i:stop])
            reached = max(reached, stop)
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return everything in a form that JSON can hold."""
        return {
            "average_ranks": dict(zip(self.methods, self.ranks, strict=True)),
            "n_blocks": self.n_blocks,
            "alpha": self.alpha,
            "friedman": {"statistic": self.friedman_statistic, "p": self.friedman_p},
            "critical_difference": self.critical_difference,
            "nemenyi_p": {
                f"{a} / {b}": float(self.p_values[i, j])
                for i, a in enumerate(self.methods)
                for j, b in enumerate(self.methods)
                if i < j
            },
            "groups": [list(group) for group in self.groups],
            "differences": [list(pair) for pair in self.differences],
        }


def compare(scores: Scores, alpha: float = 0.05) -> Comparison:
    """Compare methods over blocks: average ranks, Friedman's test, Nemenyi's test.

    Parameters
    ----------
    scores : mapping of block to {method: score}, or iterable of (method, block, score)
        Every method must have one score in every block; higher is better.
    alpha : float, default=0.05

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from fcac.paper.statistics import compare
    >>> table = [(m, block, score + block) for block in range(12) for m, score in zip("abc", (3, 2, 1))]
    >>> found = compare(table)
    >>> found.methods, found.ranks, found.groups
    (('a', 'b', 'c'), (1.0, 2.0, 3.0), [])
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1; it is {alpha!r}")
    methods, _, matrix = score_matrix(scores)
    ranks = _ranks(matrix).mean(axis=0)
    statistic, p = friedman(matrix)
    order = np.argsort(ranks, kind="stable")
    return Comparison(
        methods=tuple(methods[i] for i in order),
        ranks=tuple(float(ranks[i]) for i in order),
        n_blocks=len(matrix),
        alpha=alpha,
        friedman_statistic=statistic,
        friedman_p=p,
        critical_difference=critical_difference(len(methods), len(matrix), alpha),
        p_values=nemenyi(matrix)[np.ix_(order, order)],
    )


def compare_by_metric(
    scores: Scores, alpha: float = 0.05, metric_of: Callable[[Any], str] | None = None
) -> dict[str, Comparison]:
    """Compare as the paper does, with every metric of every set as a block, and one metric at a time.

    Parameters
    ----------
    scores : as for :func:`compare`
    alpha : float, default=0.05
    metric_of : callable, optional
        Returns the metric of a block. By default that is the last part of the block's name: the last entry of a
        tuple, or what follows the last ``/`` of a string.

    Returns
    -------
    dict of str to Comparison
        The paper's way under ``"all"``, then one comparison per metric.
    """
    part = metric_of or _last_part
    table = list(_long(scores))
    metrics = dict.fromkeys(part(block) for _, block, _ in table)
    return {"all": compare(table, alpha)} | {
        metric: compare([row for row in table if part(row[1]) == metric], alpha) for metric in metrics
    }


def surviving_differences(comparisons: Mapping[str, Comparison]) -> dict[tuple[str, str], list[str]]:
    """For each difference found with all metrics together, name the single metrics that show it too.

    Parameters
    ----------
    comparisons : mapping
        As :func:`compare_by_metric` returns.

    Returns
    -------
    dict of (better, worse) to list of str
        An empty list means that no single metric supports the claim.
    """
    single = {metric: found for metric, found in comparisons.items() if metric != "all"}
    return {
        pair: [metric for metric, found in single.items() if pair in found.differences]
        for pair in comparisons["all"].differences
    }


def holm(scores: Scores, reference: str) -> dict[str, float]:
    """Return the p-value of every other method against one, by Wilcoxon's signed-rank test with Holm's correction.

    Parameters
    ----------
    scores : as for :func:`compare`
    reference : str
        The method that the others are compared with.

    Returns
    -------
    dict of method to p-value

    References
    ----------
    S. Holm. A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6, 65-70, 1979.

    Examples
    --------
    >>> from fcac.paper.statistics import holm
    >>> table = [(m, b, s + 0.01 * b * (m == "b")) for b in range(10) for m, s in zip("abc", (3, 2, 2.9))]
    >>> {method: round(p, 4) for method, p in holm(table, "a").items()}
    {'b': 0.0039, 'c': 0.0039}
    """
    methods, _, matrix = score_matrix(scores)
    if reference not in methods:
        raise ValueError(f"reference must be one of {', '.join(methods)}; it is {reference!r}")
    own = matrix[:, methods.index(reference)]
    others = [method for method in methods if method != reference]
    found = np.array([_signed_rank(own, matrix[:, methods.index(method)]) for method in others])
    order = np.argsort(found, kind="stable")
    corrected = np.empty(len(found))
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, found[order] * np.arange(len(found), 0, -1)))
    return dict(zip(others, corrected.tolist(), strict=True))


def _signed_rank(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    if (first == second).all():
        return 1.0
    return float(stats.wilcoxon(first, second, zero_method="zsplit").pvalue)


def average_ranks(scores: Scores) -> dict[str, float]:
    """Return each method's average rank over blocks; 1 is best, equal scores share their ranks.

    Examples
    --------
    >>> from fcac.paper.statistics import average_ranks
    >>> average_ranks({"set 1": {"a": 0.9, "b": 0.5, "c": 0.5}, "set 2": {"a": 0.2, "b": 0.1, "c": 0.3}})
    {'a': 1.5, 'b': 2.75, 'c': 1.75}
    """
    methods, _, matrix = score_matrix(scores)
    return dict(zip(methods, _ranks(matrix).mean(axis=0).tolist(), strict=True))


def score_matrix(scores: Scores) -> tuple[list[str], list[Any], NDArray[np.float64]]:
    """Return methods, blocks, and the scores with one row per block and one column per method."""
    table: dict[Any, dict[str, float]] = {}
    methods: dict[str, None] = {}
    for method, block, score in _long(scores):
        methods.setdefault(method)
        row = table.setdefault(block, {})
        if method in row:
            raise ValueError(f"method {method!r} has two scores in block {block!r}")
        row[method] = float(score)
    if len(methods) < 3 or len(table) < 2:
        raise ValueError(
            f"rank tests need at least 3 methods and 2 blocks; there are {len(methods)} methods and {len(table)} blocks"
        )
    for block, row in table.items():
        missing = [method for method in methods if not np.isfinite(row.get(method, np.nan))]
        if missing:
            raise ValueError(f"block {block!r} has no score for {', '.join(missing)}: every method needs one")
    return list(methods), list(table), np.array([[row[m] for m in methods] for row in table.values()])


def friedman(matrix: NDArray[np.float64]) -> tuple[float, float]:
    """Return Friedman's chi-squared (corrected for ties) and its p-value, for scores in blocks (rows)."""
    if (matrix == matrix[:, :1]).all():
        return 0.0, 1.0  # every block is one tie; the formula would divide by zero
    statistic, p = stats.friedmanchisquare(*matrix.T)
    return float(statistic), float(p)


def nemenyi(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Nemenyi's p-value for every pair of columns of scores in blocks (rows)."""
    check_extra()
    from scikit_posthocs import posthoc_nemenyi_friedman

    values: NDArray[np.float64] = np.array(posthoc_nemenyi_friedman(matrix), dtype=np.float64)
    return values


def critical_difference(n_methods: int, n_blocks: int, alpha: float = 0.05) -> float:
    """Return the difference of average ranks beyond which Nemenyi's test calls two methods different.

    Examples
    --------
    >>> from fcac.paper.statistics import critical_difference
    >>> round(critical_difference(4, 14), 2), round(critical_difference(5, 30), 3)
    (1.25, 1.114)
    """
    if n_methods < 2 or n_blocks < 1:
        raise ValueError(f"at least 2 methods and 1 block are needed; got {n_methods} and {n_blocks}")
    q = stats.studentized_range.ppf(1 - alpha, n_methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks)))


def paper_scores(
    scenarios: Sequence[str] = SCENARIOS, metrics: Sequence[str] = METRICS, *, from_ranks: bool = False
) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return the scores that the paper prints without noise, in blocks (scenario, set, metric).

    Parameters
    ----------
    scenarios : sequence of str
        Any of "iid" and "non-iid".
    metrics : sequence of str
        Any of "ARI", "AMI" and "NMI".
    from_ranks : bool, default=False
        Return minus the rank that the paper prints beside each score. It ranked unrounded scores, so its ranks
        order methods whose printed scores are equal.

    Returns
    -------
    dict

    Examples
    --------
    >>> from fcac.paper.statistics import average_ranks, paper_scores
    >>> round(average_ranks(paper_scores(["iid"]))["FCAC"], 3)
    2.233
    """
    tables = json.loads((files("fcac.paper") / "paper_tables.json").read_text(encoding="utf-8"))
    result = {}
    for scenario in scenarios:
        for dataset, ranks in tables["ranks"][scenario].items():
            for metric in metrics:
                printed = tables[scenario][dataset][metric]
                result[scenario, dataset, metric] = {
                    method: float(-ranks[metric][method] if from_ranks else printed[method][0]) for method in printed
                }
    return result


def _ranks(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    ranks: NDArray[np.float64] = stats.rankdata(-matrix, axis=1)
    return ranks


def _long(scores: Scores) -> Iterable[tuple[str, Any, float]]:
    if isinstance(scores, Mapping):
        return [(method, block, score) for block, row in scores.items() for method, score in row.items()]
    return scores


def _last_part(block: Any) -> str:
    return str(block.rpartition("/")[2] if isinstance(block, str) else block[-1])


def cd_diagram(
    path: str | os.PathLike[str],
    comparison: Comparison,
    *,
    title: str | None = None,
    formats: Sequence[str] = ("pdf", "png"),
) -> list[Path]:
    """Draw a critical-difference diagram: average ranks on a line, bars joining methods that do not differ.

    The best rank is on the right, as in the paper. A bar joins methods between which no difference was found; the
    critical difference is shown as a length at the top left. If Friedman's test finds no difference at all, one bar
    joins all methods.

    Parameters
    ----------
    path : path
        Path of the files, without the extension.
    comparison : Comparison
    title : str, optional
    formats : sequence of str, default=("pdf", "png")

    Returns
    -------
    list of Path
        The files written.
    """
    check_extra()
    import matplotlib

    figure = _draw(comparison, title)
    written = []
    # Type 42 keeps the text of a PDF searchable; there is no date in it, so that equal diagrams are equal files.
    with matplotlib.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "fcac"}):
        for ending in formats:
            buffer = io.BytesIO()
            undated = {"CreationDate": None} if ending == "pdf" else None
            figure.savefig(buffer, format=ending, dpi=300, metadata=undated, bbox_inches="tight", pad_inches=0.08)
            target = Path(f"{os.fspath(path)}.{ending}")
            write_atomic(target, buffer.getvalue())
            written.append(target)
    return written


def _draw(comparison: Comparison, title: str | None) -> Any:
    """Lay the diagram out; one unit of height is one line of text, one unit of width is one rank."""
    from matplotlib.figure import Figure

    methods, ranks, groups = comparison.methods, comparison.ranks, comparison.groups
    k = len(methods)
    n_right = (k + 1) // 2
    below_bars = -0.9 - 0.55 * len(groups)
    bottom = below_bars - 1.1 * n_right
    top = 3.4 + (1.3 if title else 0.0)
    side = 0.12 * (k - 1)  # how far lines extend beyond the axis

    figure = Figure(figsize=(4.6, 0.19 * (top - bottom + 1.2)))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    # Reversed: the best rank is on the right. Names may reach beyond the axes; the page is fitted to them on saving.
    axes.set_xlim(k + side, 1 - side)
    axes.set_ylim(bottom - 1.2, top)

    axes.plot([1, k], [0, 0], color=_INK, linewidth=1.2, solid_capstyle="projecting")
    for tick in range(1, k + 1):
        axes.plot([tick, tick], [0, 0.45], color=_INK, linewidth=1.2)
        axes.text(tick, 0.6, str(tick), ha="center", va="bottom", fontsize=9, color=_INK)
        if tick < k:
            axes.plot([tick + 0.5] * 2, [0, 0.25], color=_INK, linewidth=0.8)

    length = comparison.critical_difference
    axes.plot([k, k - length], [2.1, 2.1], color=_INK, linewidth=1.2)
    for end in (k, k - length):
        axes.plot([end, end], [1.9, 2.3], color=_INK, linewidth=1.2)
    axes.text(
        k - length - 0.02 * (k - 1),
        2.1,
        f"critical difference {comparison.critical_difference:.2f}",
        ha="left",
        va="center",
        fontsize=8,
        color=_INK,
    )

    for i, (method, rank) in enumerate(zip(methods, ranks, strict=True)):
        right = i < n_right
        # The outermost method's line is the highest, so that no line crosses another's stem.
        y = below_bars - 1.1 * (i if right else k - 1 - i)
        edge = 1 - side if right else k + side
        axes.plot([rank, rank, edge], [0, y, y], color=_STEM, linewidth=0.9, solid_joinstyle="miter")
        axes.plot([rank], [0], marker="o", markersize=3.5, color=_INK)
        axes.text(
            edge - (0.02 if right else -0.02) * (k - 1),
            y,
            f"{method} ({rank:.2f})",
            ha="left" if right else "right",
            va="center",
            fontsize=9,
            color=_INK,
        )

    for level, group in enumerate(groups):
        height = -0.7 - 0.55 * level
        overhang = 0.01 * (k - 1)
        ends = [ranks[methods.index(group[0])] - overhang, ranks[methods.index(group[-1])] + overhang]
        axes.plot(ends, [height, height], color=_BAR, linewidth=3.5, solid_capstyle="round")

    verdict = "" if comparison.any_difference else ", no significant difference"
    p = comparison.friedman_p
    axes.text(
        (1 + k) / 2,
        bottom - 0.3,
        f"{comparison.n_blocks} blocks, Friedman p {f'= {p:.3f}' if p >= 0.001 else '< 0.001'}{verdict}",
        ha="center",
        va="center",
        fontsize=8,
        color=_INK,
    )
    if title:
        axes.text((1 + k) / 2, top - 0.9, title, ha="center", va="center", fontsize=10, color=_INK)
    return figure
