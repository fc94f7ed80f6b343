"""Fit the judge of borders on generated tables: ``python -m benchmarks.fit_judge``, from the repository.

Draws tables of every family (`benchmarks.judge.families`), takes the evidence about every inner node of their proposed
hierarchies with the product's own code, and fits boosted trees that tell which nodes part different clusters. What they
learn is the cut of each hierarchy that parts most pairs of rows rightly, less those it parts wrongly.

Families are left out in five folds: each is judged by trees that never saw it. From these come how much to ask of a
border for a given rate of false splits, the calibration, and the figures that are reported. The judge that is written
has seen all families. Nothing of any published set enters.

Tables are kept in one file for each seed, so that a run that was stopped goes on where it was; several processes may
gather at a time (``--gather-only --part 0/2`` and ``--part 1/2``). The same seeds give the same judge, to the digit.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.judge.families import FAMILIES
from benchmarks.judge.truth import Table, kept, read, table_of
from numpy.typing import NDArray

from fcac._split_rate import FALSE_SPLIT_RATE
from fcac.clusters import judge as product
from fcac.clusters.evidence import COLUMNS

#: Evidence of which more can only speak for a border.
RISING = (
    "gap", "dip", "local_dip", "neck", "prominence", "stretch", "jump", "facing", "facing_close", "line_z",
    "line_depth", "line_apart", "line_gain", "way_z", "way_depth", "way_apart", "gauss", "gap_z", "dip_z",
    "prominence_z", "neck_z", "gauss_z", "agree_1", "agree_2", "score", "mixture_z",
)  # fmt: skip
#: Nodes further below the last real border are not learned from.
DEEPEST = 3
FOLDS = 5
RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
ROOT = Path(__file__).parents[1]
JUDGE = ROOT / "src/fcac/clusters/judge.npz"
REPORT = ROOT / "benchmarks/results/judge.json"


def gather(folder: Path, seeds: range, part: int, parts: int) -> list[Table]:
    """Every table of the seeds, from files where they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = []
    for seed in seeds:
        path = folder / f"seed-{seed:03d}.npz"
        if seed % parts != part:
            continue
        if not path.exists():
            start = time.perf_counter()
            found = [table_of(name, seed) for name in sorted(FAMILIES)]
            kept(path, [table for table in found if table is not None])
            print(f"seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
        tables += read(path)
    return tables


def examples(tables: list[Table]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Evidence, whether the border is real, the weight of each example, and its table.

    A table counts as the square root of what it has to tell: one of 50 clusters must not drown out fifty of one.
    Below the last real border each level counts for half of the one above.
    """
    rows, real, weight, of_table = [], [], [], []
    for i, table in enumerate(tables):
        for tree in table.trees:
            counts = np.where(tree.below == 0, 1.0, 0.3 * 0.5 ** np.maximum(tree.below - 1.0, 0.0))
            chosen = tree.told & (tree.below <= DEEPEST)
            if chosen.any():
                rows.append(tree.evidence[chosen])
                real.append(tree.real[chosen])
                weight.append(counts[chosen] / np.sqrt(counts[chosen].sum()))
                of_table.append(np.full(int(chosen.sum()), i))
    return np.concatenate(rows), np.concatenate(real), np.concatenate(weight), np.concatenate(of_table)


def boosted(rows: NDArray[Any], real: NDArray[Any], weight: NDArray[Any]) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    rising = [int(column in RISING) for column in COLUMNS]
    trees = HistGradientBoostingClassifier(
        max_iter=200, learning_rate=0.1, max_depth=6, min_samples_leaf=80, l2_regularization=5.0, max_bins=64,
        monotonic_cst=rising, early_stopping=False, random_state=0,
    )  # fmt: skip
    return trees.fit(rows, real, sample_weight=weight)


def fold_of(name: str) -> int:
    return zlib.crc32(name.encode()) % FOLDS


def odds_left_out(tables: list[Table]) -> list[list[NDArray[Any]]]:
    """Log-odds of every inner node from trees that never saw the family of its table."""
    rows, real, weight, of_table = examples(tables)
    fold = np.array([fold_of(table.name) for table in tables])
    odds: list[list[NDArray[Any]]] = [[] for _ in tables]
    for left_out in range(FOLDS):
        learned = fold[of_table] != left_out
        trees = boosted(rows[learned], real[learned], weight[learned])
        for i in np.flatnonzero(fold == left_out):
            odds[i] = [trees.decision_function(t.evidence) if len(t.evidence) else np.zeros(0) for t in tables[i].trees]
        print(f"fold {left_out + 1} of {FOLDS}", flush=True)
    return odds


def known_odds(path: Path, tables: list[Table]) -> list[list[NDArray[Any]]]:
    """The same, from a file if it is there."""
    if not path.exists():
        odds = odds_left_out(tables)
        np.savez(path, **{f"{i}.{j}": of_tree for i, of in enumerate(odds) for j, of_tree in enumerate(of)})
    with np.load(path) as parts:
        return [[parts[f"{i}.{j}"] for j in range(3)] for i in range(len(tables))]


class Answer(NamedTuple):
    """What comes out for one table."""

    n_clusters: int
    ari: float
    borders: list[tuple[float, bool]]
    by_number: NDArray[Any]


def answer(table: Table, odds: list[NDArray[Any]], asked: float) -> Answer:
    """The default cut by the product's own rule, whether its borders are real, and the worth of every number."""
    parts = [product.Parting.best(t.left, t.right, o - asked) for t, o in zip(table.trees, odds, strict=True)]
    chosen = product.chosen(parts, table.shared)
    tree, part = table.trees[chosen], parts[chosen]
    groups = np.unique(part.of_atom, return_inverse=True)[1]
    held = np.zeros((int(groups.max()) + 1, tree.rows.shape[1]))
    np.add.at(held, groups, tree.rows)
    borders = [(float(odds[chosen][x] - asked), bool(tree.real[x])) for x in np.flatnonzero(part.parted & tree.told)]
    return Answer(len(held), product.adjusted_rand(held), borders, part.by_number)


def asked_for(tables: list[Table], odds: list[list[NDArray[Any]]], rate: float) -> float:
    """Log-odds to ask of a border so that this share of the tables without clusters is split."""
    single = [i for i, table in enumerate(tables) if table.n_clusters == 1]
    low, high = -4.0, 10.0
    for _ in range(12):
        middle = (low + high) / 2
        split = np.mean([answer(tables[i], odds[i], middle).n_clusters > 1 for i in single])
        low, high = (middle, high) if split > rate else (low, middle)
    return high


def told_number(table: Table, odds: list[NDArray[Any]]) -> float:
    """Adjusted Rand index of the cut into the true number of clusters that is worth most."""
    found = []
    for tree, of_tree in zip(table.trees, odds, strict=True):
        wanted = min(table.n_clusters, len(of_tree) + 1)
        sums, leftwards = product.best_cuts(tree.left, tree.right, np.minimum(of_tree, product.MOST_ODDS), wanted)
        of_atom = product.part_of_atoms(
            tree.left, tree.right, product.parted_into(tree.left, tree.right, leftwards, wanted)
        )
        groups = np.unique(of_atom, return_inverse=True)[1]
        held = np.zeros((int(groups.max()) + 1, tree.rows.shape[1]))
        np.add.at(held, groups, tree.rows)
        found.append((sums[wanted], product.adjusted_rand(held)))
    return max(found)[1]


def log_likelihood(warmth: float, doubt: float, answers: list[tuple[Answer, int]]) -> float:
    """Mean log probability of the true number of clusters."""
    total = 0.0
    for found, true in answers:
        probable = product.number_probabilities(found.by_number, warmth, doubt)
        total += np.log(max(probable[true - 1] if true <= len(probable) else 0.0, 1e-4))
    return total / len(answers)


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


def measured(tables: list[Table], odds: list[list[NDArray[Any]]]) -> dict[str, Any]:
    """What the judge asks for, its calibration, and how good it is on families it has not seen."""
    from sklearn.linear_model import LogisticRegression

    asked = {rate: asked_for(tables, odds, rate) for rate in RATES}
    answers = [answer(table, of, asked[FALSE_SPLIT_RATE]) for table, of in zip(tables, odds, strict=True)]
    borders = np.array([border for found in answers for border in found.borders])
    line = LogisticRegression(C=1e6).fit(borders[:, :1], borders[:, 1])
    slope, intercept = float(line.coef_[0, 0]), float(line.intercept_[0])
    numbers = [(found, table.n_clusters) for found, table in zip(answers, tables, strict=True)]
    tried = [(w, d) for w in np.exp(np.linspace(np.log(0.1), np.log(10), 25)) for d in np.linspace(0.02, 0.5, 25)]
    warmth, doubt = max(tried, key=lambda pair: log_likelihood(*pair, numbers))
    said = 1 / (1 + np.exp(-(slope * borders[:, 0] + intercept)))
    border_error, border_bins = calibration_error(said, borders[:, 1])
    sure = []
    for found, true in numbers:
        probable = product.number_probabilities(found.by_number, warmth, doubt)
        sure.append((probable[found.n_clusters - 1], found.n_clusters == true))
    right = np.array(sure, dtype=float)
    number_error, number_bins = calibration_error(right[:, 0], right[:, 1])
    groups: dict[str, list[tuple[float, bool, bool]]] = {}
    for found, table in zip(answers, tables, strict=True):
        groups.setdefault(table.group, []).append(
            (found.ari, found.n_clusters == table.n_clusters, found.n_clusters == 1)
        )
    several = [(found, table) for found, table in zip(answers, tables, strict=True) if table.n_clusters > 1]
    return {
        "tables": len(tables),
        "families": len({table.name for table in tables}),
        "asked": {str(rate): value for rate, value in asked.items()},
        "slope": slope, "intercept": intercept, "warmth": float(warmth), "doubt": float(doubt),
        "several": {
            "ari": float(np.mean([found.ari for found, _ in several])),
            "right": float(np.mean([found.n_clusters == table.n_clusters for found, table in several])),
            "one": float(np.mean([found.n_clusters == 1 for found, _ in several])),
            "told": float(np.mean([told_number(t, o) for t, o in zip(tables, odds, strict=True) if t.n_clusters > 1])),
        },
        "single stays whole": float(np.mean([found.n_clusters == 1 for found, true in numbers if true == 1])),
        "calibration error": {"border": border_error, "number": number_error},
        "borders": border_bins, "numbers": number_bins,
        "groups": {
            name: dict(zip(("ari", "right", "one"), np.mean(found, axis=0).tolist(), strict=True)) | {"n": len(found)}
            for name, found in sorted(groups.items())
        },
    }  # fmt: skip


def arrays_of(trees: Any, figures: dict[str, Any]) -> dict[str, Any]:
    """The judge as arrays."""
    grown = [predictors[0].nodes for predictors in trees._predictors]
    most = max(len(nodes) for nodes in grown)
    shape = (len(grown), most)
    feature, left, right = np.full(shape, -1, np.int16), np.zeros(shape, np.int16), np.zeros(shape, np.int16)
    threshold, value = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for t, nodes in enumerate(grown):
        inner = ~nodes["is_leaf"].astype(bool)
        feature[t, : len(nodes)] = np.where(inner, nodes["feature_idx"], -1)
        left[t, : len(nodes)], right[t, : len(nodes)] = nodes["left"], nodes["right"]
        threshold[t, : len(nodes)] = np.where(inner, nodes["num_threshold"], 0.0)
        value[t, : len(nodes)] = np.where(inner, 0.0, nodes["value"])
    return {
        "base": np.float64(trees._baseline_prediction.ravel()[0]),
        "feature": feature, "left": left, "right": right, "threshold": threshold, "value": value,
        "rates": np.array(RATES), "asked": np.array([figures["asked"][str(rate)] for rate in RATES]),
        "slope": np.float64(figures["slope"]), "intercept": np.float64(figures["intercept"]),
        "warmth": np.float64(figures["warmth"]), "doubt": np.float64(figures["doubt"]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24, help="tables of each family")
    parser.add_argument("--folder", type=Path, default=ROOT / "out/judge", help="where tables are kept")
    parser.add_argument("--gather-only", action="store_true")
    parser.add_argument("--part", default="0/1", help="gather this part of the seeds only, such as 0/2")
    chosen = parser.parse_args()
    part, parts = (int(v) for v in chosen.part.split("/"))
    tables = gather(chosen.folder, range(chosen.seeds), part, parts)
    if chosen.gather_only:
        return
    print(f"{len(tables)} tables", flush=True)
    figures = measured(tables, known_odds(chosen.folder / "odds.npz", tables))
    print(json.dumps({k: v for k, v in figures.items() if k not in ("borders", "numbers")}, indent=1))
    rows, real, weight, _ = examples(tables)
    arrays = arrays_of(boosted(rows, real, weight), figures)
    temporary = JUDGE.with_suffix(".part.npz")
    np.savez_compressed(temporary, **arrays)
    temporary.replace(JUDGE)
    REPORT.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
