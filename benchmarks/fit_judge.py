"""Fit the judge of clusters on generated tables: ``python -m benchmarks.fit_judge``, from the repository.

Draws tables of every family (`benchmarks.judge.families`), takes the evidence about every inner node of their proposed
hierarchies with the product's own code, and fits two sums of boosted trees. The first tells which nodes part different
clusters; it learns the cut of each hierarchy that parts most pairs of rows rightly, less those it parts wrongly. The
second scores the cuts that are worth most by those odds; it learns how well each agrees with the true partition.

Families are left out in five folds: each is judged by trees that never saw it. From these come what one cluster is set
ahead for a given rate of false splits, the calibration, and the figures that are reported. The judge that is written
has seen all families. Nothing of any published set enters.

Tables are kept in one file for each seed, so that a run that was stopped goes on where it was; several processes may
gather at a time (``--gather-only --part 0/2`` and ``--part 1/2``). The same seeds give the same judge, to the digit.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.judge.answers import Case, case_of, measured
from benchmarks.judge.families import FAMILIES
from benchmarks.judge.truth import N_TREES, Table, kept, read, table_of
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fcac.clusters.evidence import COLUMNS

#: Evidence of which more can only speak for a border.
RISING = (
    "gap", "dip", "local_dip", "neck", "prominence", "stretch", "jump", "facing", "facing_close", "line_z",
    "line_depth", "line_apart", "line_gain", "way_z", "way_depth", "way_apart", "gauss", "gap_z", "dip_z",
    "prominence_z", "neck_z", "gauss_z", "agree_1", "agree_2", "agree_3", "score", "mixture_z",
)  # fmt: skip
#: Nodes further below the last real border are not learned from.
DEEPEST = 3
FOLDS = 5
#: Sums of trees that score cuts, of which the mean is taken.
SUMS = 3
#: What a cut is scored for, besides its agreement with the true partition: that their numbers of clusters are the same.
FOR_THE_NUMBER = 0.2
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


def of_borders(rows: NDArray[Any], real: NDArray[Any], weight: NDArray[Any]) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    rising = [int(column in RISING) for column in COLUMNS]
    trees = HistGradientBoostingClassifier(
        max_iter=200, learning_rate=0.1, max_depth=6, min_samples_leaf=80, l2_regularization=5.0, max_bins=64,
        monotonic_cst=rising, early_stopping=False, random_state=0,
    )  # fmt: skip
    return trees.fit(rows, real, sample_weight=weight)


def of_cuts(cases: list[Case]) -> list[Any]:
    """Sums of trees of which the mean scores cuts: each split sees a draw of the figures, so that sums differ.

    Every table counts the same.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    goal = [(1 - FOR_THE_NUMBER) * case.agrees + FOR_THE_NUMBER * (case.number == case.n_true) for case in cases]
    weight = [np.full(len(case.number), 1 / len(case.number)) for case in cases]
    rows = np.concatenate([case.rows for case in cases])
    return [
        HistGradientBoostingRegressor(
            max_iter=250, learning_rate=0.06, max_depth=6, min_samples_leaf=150, l2_regularization=5.0, max_bins=64,
            max_features=0.3, early_stopping=False, random_state=seed,
        ).fit(rows, np.concatenate(goal), sample_weight=np.concatenate(weight))
        for seed in range(SUMS)
    ]  # fmt: skip


def mean_of(sums: list[Any], rows: NDArray[Any]) -> NDArray[Any]:
    return np.mean([trees.predict(rows) for trees in sums], axis=0) if len(rows) else np.zeros(0)


def fold_of(name: str) -> int:
    return zlib.crc32(name.encode()) % FOLDS


def side_by_side(work: Callable[[Any], Any], items: Iterable[Any], at_a_time: int = 1) -> list[Any]:
    """Do a piece of work for each item, in two processes that share what is in memory."""
    _HELD["work"] = work
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(_worked, items, chunksize=at_a_time)


#: What the processes of `side_by_side` do; they are forked when it is here.
_HELD: dict[str, Callable[[Any], Any]] = {}


def _worked(item: Any) -> Any:
    with threadpool_limits(1):
        return _HELD["work"](item)


def odds_left_out(tables: list[Table], path: Path) -> list[list[NDArray[Any]]]:
    """Log-odds of every inner node from trees that never saw the family of its table; from a file if it is there."""
    if not path.exists():
        rows, real, weight, of_table = examples(tables)
        fold = np.array([fold_of(table.name) for table in tables])

        def work(left_out: int) -> dict[str, NDArray[Any]]:
            learned = fold[of_table] != left_out
            trees = of_borders(rows[learned], real[learned], weight[learned])
            print(f"borders: fold {left_out + 1} of {FOLDS}", flush=True)
            return {
                f"{i}.{j}": trees.decision_function(tree.evidence) if len(tree.evidence) else np.zeros(0)
                for i in np.flatnonzero(fold == left_out)
                for j, tree in enumerate(tables[i].trees)
            }

        found: dict[str, NDArray[Any]] = {}
        for part in side_by_side(work, range(FOLDS)):
            found |= part
        np.savez(path, **found)
    with np.load(path) as parts:
        return [[parts[f"{i}.{j}"] for j in range(N_TREES)] for i in range(len(tables))]


def scores_left_out(cases: list[Case]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Scores of every cut, and of those into the true number, from trees that never saw the family of the table."""
    fold = np.array([fold_of(case.name) for case in cases])

    def work(left_out: int) -> dict[int, tuple[NDArray[Any], NDArray[Any]]]:
        sums = of_cuts([case for case, of in zip(cases, fold, strict=True) if of != left_out])
        print(f"cuts: fold {left_out + 1} of {FOLDS}", flush=True)
        return {
            i: (mean_of(sums, cases[i].rows), mean_of(sums, cases[i].told_rows))
            for i in np.flatnonzero(fold == left_out).tolist()
        }

    found: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
    for part in side_by_side(work, range(FOLDS)):
        found |= part
    return [found[i] for i in range(len(cases))]


def sum_of(sums: list[Any], of: str) -> dict[str, Any]:
    """The mean of sums of trees as arrays."""
    grown = [predictors[0].nodes for trees in sums for predictors in trees._predictors]
    most = max(len(nodes) for nodes in grown)
    shape = (len(grown), most)
    feature, left, right = np.full(shape, -1, np.int16), np.zeros(shape, np.int16), np.zeros(shape, np.int16)
    threshold, value = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for t, nodes in enumerate(grown):
        inner = ~nodes["is_leaf"].astype(bool)
        feature[t, : len(nodes)] = np.where(inner, nodes["feature_idx"], -1)
        left[t, : len(nodes)], right[t, : len(nodes)] = nodes["left"], nodes["right"]
        threshold[t, : len(nodes)] = np.where(inner, nodes["num_threshold"], 0.0)
        value[t, : len(nodes)] = np.where(inner, 0.0, nodes["value"] / len(sums))
    arrays = {"feature": feature, "left": left, "right": right, "threshold": threshold, "value": value}
    base = np.mean([trees._baseline_prediction.ravel()[0] for trees in sums])
    return {f"{of}.base": np.float64(base)} | {f"{of}.{name}": array for name, array in arrays.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=96, help="tables of each family")
    parser.add_argument("--folder", type=Path, default=ROOT / "out/judge", help="where tables are kept")
    parser.add_argument("--gather-only", action="store_true")
    parser.add_argument("--part", default="0/1", help="gather this part of the seeds only, such as 0/2")
    chosen = parser.parse_args()
    part, parts = (int(v) for v in chosen.part.split("/"))
    tables = gather(chosen.folder, range(chosen.seeds), part, parts)
    if chosen.gather_only:
        return
    print(f"{len(tables)} tables", flush=True)
    odds = odds_left_out(tables, chosen.folder / f"odds-{chosen.seeds}.npz")
    cases = side_by_side(lambda i: case_of(tables[i], odds[i]), range(len(tables)), 50)
    figures, settings = measured(cases, scores_left_out(cases))
    print(json.dumps({k: v for k, v in figures.items() if k not in ("borders", "numbers")}, indent=1))
    rows, real, weight, _ = examples(tables)
    arrays = sum_of([of_borders(rows, real, weight)], "borders") | sum_of(of_cuts(cases), "cuts") | settings
    temporary = JUDGE.with_suffix(".part.npz")
    np.savez_compressed(temporary, **arrays)
    temporary.replace(JUDGE)
    REPORT.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
