"""What the judge answers on tables whose families it has not seen: how good, and how to read its odds and scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from fcac._split_rate import FALSE_SPLIT_RATE
from fcac.clusters.cuts import MOST_NUMBER, Cuts, described, offered
from fcac.clusters.judge import number_probabilities
from fcac.clusters.proposals import part_of_atoms

from .truth import Table, Tree

RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


class Case(NamedTuple):
    """A table, the cuts that are offered for it, and how each agrees with the true partition.

    `told_rows` and `told_agrees` are of the cuts into the true number of clusters. `borders` are the borders of every
    cut, those that it parts and those it leaves open next below: their log-odds, whether they are real, and which.
    """

    name: str
    group: str
    n_rows: int
    n_true: int
    rows: NDArray[Any]
    number: NDArray[Any]
    agrees: NDArray[Any]
    told_rows: NDArray[Any]
    told_agrees: NDArray[Any]
    borders: list[NDArray[Any]]


def case_of(table: Table, odds: list[NDArray[Any]]) -> Case:
    """The cuts of a table, as the product describes them."""
    shapes = [(tree.left, tree.right) for tree in table.trees]
    evidence = [tree.evidence.astype(np.float64) for tree in table.trees]
    cuts = offered(shapes, odds, table.cells)
    rows = described(cuts, shapes, odds, evidence, table.in_cells)
    told = offered(shapes, odds, table.cells, table.n_clusters)
    told_rows = described(told, shapes, odds, evidence, table.in_cells, cuts) if len(told.tree) else rows[:0]
    borders = [_borders(table.trees[t], odds[t], parted) for t, parted in zip(cuts.tree, cuts.parted, strict=True)]
    return Case(
        table.name, table.group, table.n_rows, table.n_clusters, rows.astype(np.float32), cuts.number,
        _agreements(table.trees, cuts), told_rows.astype(np.float32), _agreements(table.trees, told), borders,
    )  # fmt: skip


def _borders(tree: Tree, odds: NDArray[Any], parted: NDArray[Any]) -> NDArray[Any]:
    p = len(parted) + 1
    made = np.r_[np.zeros(p, dtype=bool), parted]
    reached = np.r_[tree.left[made], tree.right[made], len(tree.left) - 1]
    open_ = reached[(reached >= p) & ~made[reached]] - p
    some = np.r_[np.flatnonzero(parted), open_]
    found = np.stack([odds[some], tree.real[some], parted[some]], axis=1)
    return found[tree.told[some]]


def _agreements(trees: list[Tree], cuts: Cuts) -> NDArray[Any]:
    return np.array([_agreement(trees[t], parted) for t, parted in zip(cuts.tree, cuts.parted, strict=True)])


def _agreement(tree: Tree, parted: NDArray[Any]) -> float:
    """Adjusted Rand index of a cut and the true partition, over the labelled rows."""
    made = np.r_[np.zeros(len(parted) + 1, dtype=bool), parted]
    groups = np.unique(part_of_atoms(tree.left, tree.right, made), return_inverse=True)[1]
    held = np.zeros((int(groups.max()) + 1, tree.rows.shape[1]))
    np.add.at(held, groups, tree.rows)
    both, one, other = (float((of * (of - 1) / 2).sum()) for of in (held, held.sum(axis=1), held.sum(axis=0)))
    n = held.sum()
    by_chance = one * other / max(n * (n - 1) / 2, 1.0)
    most = (one + other) / 2
    return 1.0 if most == by_chance else (both - by_chance) / (most - by_chance)


class Answer(NamedTuple):
    """What comes out for one table."""

    n_clusters: int
    ari: float
    borders: NDArray[Any]
    by_number: NDArray[Any]


def answer(case: Case, scores: NDArray[Any], ahead: float) -> Answer:
    """The cut with the highest score, and the highest score of every number."""
    scores = scores + ahead * (case.number == 1)
    best = int(np.argmax(scores))
    by_number = np.full(max(MOST_NUMBER, int(case.number.max())), -np.inf)
    np.maximum.at(by_number, case.number - 1, scores)
    return Answer(int(case.number[best]), float(case.agrees[best]), case.borders[best], by_number)


def log_likelihood(warmth: float, doubt: float, numbers: NDArray[Any], true: NDArray[Any]) -> float:
    """Mean log probability of the true number of clusters."""
    weights = np.exp((numbers - numbers.max(axis=1, keepdims=True)) / warmth)
    blind = np.where(np.isfinite(numbers), 1.0 / np.arange(1, numbers.shape[1] + 1), 0.0)
    of_true = np.arange(len(true)), true - 1
    sure = (weights / weights.sum(axis=1, keepdims=True))[of_true]
    said = (1 - doubt) * sure + doubt * (blind / blind.sum(axis=1, keepdims=True))[of_true]
    return float(np.log(np.maximum(said, 1e-4)).mean())


def calibration_error(
    said: NDArray[Any], true: NDArray[Any], bins: int = 10
) -> tuple[float, list[tuple[float, float, int]]]:
    """Mean gap between what was said and how often it was true, over bins of equal width; and the bins."""
    where = np.minimum((said * bins).astype(int), bins - 1)
    table = [
        (float(said[where == b].mean()), float(true[where == b].mean()), int((where == b).sum()))
        for b in range(bins)
        if (where == b).any()
    ]
    return sum(abs(s - t) * n for s, t, n in table) / len(said), table


def measured(
    cases: list[Case], scores: list[tuple[NDArray[Any], NDArray[Any]]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """How good the judge is on families it has not seen, for people; and how its sums are read, for the product."""
    single = [
        float(of[case.number > 1].max(initial=-9.0) - of[case.number == 1].max())
        for case, (of, _) in zip(cases, scores, strict=True)
        if case.n_true == 1
    ]
    # so far must one cluster be set ahead that this share of the tables without clusters is split
    ahead = {rate: float(np.quantile(single, 1 - rate)) for rate in RATES}
    answers = [answer(case, of, ahead[FALSE_SPLIT_RATE]) for case, (of, _) in zip(cases, scores, strict=True)]
    true = np.array([case.n_true for case in cases])
    numbers = np.stack([found.by_number[:MOST_NUMBER] for found in answers])
    tried = [(w, d) for w in np.exp(np.linspace(np.log(0.01), np.log(0.5), 25)) for d in np.linspace(0.0, 0.4, 21)]
    warmth, doubt = max(tried, key=lambda pair: log_likelihood(*pair, numbers, true))
    found_number = np.array([found.n_clusters for found in answers])
    sure = np.array([number_probabilities(found.by_number, warmth, doubt)[found.n_clusters - 1] for found in answers])
    number_error, number_bins = calibration_error(sure, (found_number == true).astype(float))
    borders = np.concatenate([found.borders for found in answers])
    # a border is as sure as its odds, and as the number of clusters it goes with
    bounded = np.clip(sure, 0.001, 0.999)
    certain = np.repeat(np.log(bounded / (1 - bounded)), [len(found.borders) for found in answers])
    known = np.stack([borders[:, 0], certain], axis=1)
    said, lines = np.zeros(len(borders)), []
    for parted in (True, False):
        some = borders[:, 2] == parted
        line = LogisticRegression(C=1e6).fit(known[some], borders[some, 1])
        said[some] = line.predict_proba(known[some])[:, 1]
        lines.append(np.r_[line.coef_[0], line.intercept_])
    border_error, border_bins = calibration_error(said, borders[:, 1])
    groups: dict[str, list[tuple[float, bool, bool]]] = {}
    for found, case in zip(answers, cases, strict=True):
        groups.setdefault(case.group, []).append((found.ari, found.n_clusters == case.n_true, found.n_clusters == 1))
    several = [(found, case) for found, case in zip(answers, cases, strict=True) if case.n_true > 1]
    told = [
        case.told_agrees[int(np.argmax(of))]
        for case, (_, of) in zip(cases, scores, strict=True)
        if case.n_true > 1 and len(of)
    ]
    of_rows = [(case.n_rows, found.n_clusters == 1) for found, case in zip(answers, cases, strict=True)
               if case.n_true == 1]  # fmt: skip
    settings = {
        "rates": np.array(RATES), "ahead": np.array([ahead[rate] for rate in RATES]),
        "parted": lines[0], "open": lines[1],
        "warmth": np.float64(warmth), "doubt": np.float64(doubt),
    }  # fmt: skip
    figures = {
        "tables": len(cases),
        "families": len({case.name for case in cases}),
        "ahead": {str(rate): value for rate, value in ahead.items()},
        "parted": lines[0].tolist(), "open": lines[1].tolist(), "warmth": float(warmth), "doubt": float(doubt),
        "several": {
            "ari": float(np.mean([found.ari for found, _ in several])),
            "right": float(np.mean([found.n_clusters == case.n_true for found, case in several])),
            "one": float(np.mean([found.n_clusters == 1 for found, _ in several])),
            "told": float(np.mean(told)),
        },
        "single stays whole": float(np.mean([whole for _, whole in of_rows])),
        "up to 100 rows": float(np.mean([whole for n, whole in of_rows if n <= 100])),
        "calibration error": {"border": border_error, "number": number_error},
        "borders": border_bins, "numbers": number_bins,
        "groups": {
            name: dict(zip(("ari", "right", "one"), np.mean(found, axis=0).tolist(), strict=True)) | {"n": len(found)}
            for name, found in sorted(groups.items())
        },
    }  # fmt: skip
    return figures, settings
