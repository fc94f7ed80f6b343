"""How well tables of mixed columns with gaps are clustered: what docs/guide/schema.md says, measured.

Run with ``python benchmarks/mixed_tables.py [--seeds N] [--only hospital,balance,gaps,speed]``. k-means is told the
number of clusters and gets gaps filled with means and one-hot codes; k-prototypes (Huang, 1998) is told it too.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score as ami

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fcac import FCAC
from fcac.nodes import Reservoir
from fcac.privacy import NodeRelease
from fcac.tables.column import Column
from fcac.tables.schema import Schema
from testing.tables import LABS, hospital, mixed


def usual(table, k: int) -> np.ndarray:
    """Mean filling, standard scaling, one-hot codes and k-means told k."""
    import pandas as pd

    parts = []
    for name in table:
        column = table[name]
        if column.dtype.kind in "fiu":
            filled = column.fillna(column.mean())
            parts.append(((filled - filled.mean()) / filled.std()).to_numpy()[:, None])
        else:
            parts.append(pd.get_dummies(column).to_numpy(float))
    return KMeans(k, n_init=5, random_state=0).fit_predict(np.concatenate(parts, axis=1))


def k_prototypes(table, k: int, seed: int = 0) -> np.ndarray:
    """Huang's k-prototypes with gamma of half the spread of numbers, best of five starts."""
    numbers = table[[c for c in table if table[c].dtype.kind == "f"]].to_numpy()
    codes = np.stack([np.unique(table[c], return_inverse=True)[1] for c in table if table[c].dtype.kind != "f"], 1)
    gamma, best = 0.5 * numbers.std(), (np.inf, None)
    for start in range(5):
        rng = np.random.default_rng(seed + start)
        first = rng.choice(len(numbers), k, replace=False)
        means, modes = numbers[first], codes[first]
        for _ in range(30):
            cost = ((numbers[:, None] - means) ** 2).sum(2) + gamma * (codes[:, None] != modes).sum(2)
            labels = cost.argmin(1)
            for j in range(k):
                if (labels == j).any():
                    means[j] = numbers[labels == j].mean(0)
                    modes[j] = [np.bincount(column).argmax() for column in codes[labels == j].T]
        total = cost.min(1).sum()
        if total < best[0]:
            best = total, labels
    return best[1]


def public_schema(guessed: Schema) -> Schema:
    """The guessed kinds of the hospital's table with bounds that anybody may know."""
    bounds = dict(zip(("age", *LABS), ((0, 110), (5, 25), (110, 180), (0, 6), (0.1, 500)), strict=True))
    levels = [
        f"{chapter}{n:02d}"
        for chapter, some in (("I", (10, 21, 50)), ("J", (18, 44, 45)), ("N", (17, 18, 39)))
        for n in some
    ]
    columns = []
    for column in guessed.used:
        if column.name in bounds:
            low, high = bounds[column.name]
            scaling = "log" if column.scaling == "log" else "range"
            columns.append(Column(column.name, min=low, max=high, scaling=scaling, missing="native"))
        elif column.name == "admitted":
            columns.append(Column("admitted", kind="date", min="2021-01-01", max="2023-12-31", scaling="range"))
        elif column.name == "diagnosis":
            columns.append(Column("diagnosis", kind="category", categories=levels, missing="native"))
        elif column.name == "sex":
            columns.append(Column("sex", kind="boolean", yes=["f"], no=["m"], missing="native"))
        else:
            columns.append(column)
    return Schema(columns, bounds_are_public=True)


def hospitals(seeds: int) -> None:
    print("hospital: AMI (clusters); three groups, 6,000 rows at three sites")
    for gaps in (0.0, 0.3, 0.5):
        for seed in range(seeds):
            table, group = hospital(seed, gaps)
            schema = Schema.guess(table.drop(columns="hospital"))
            one = FCAC(random_state=0).fit(table.drop(columns="hospital"), schema=schema)
            three = FCAC(random_state=0).fit(table, groups="hospital", schema=schema)
            said = [f"one site {ami(group, one.labels_):.3f} ({one.n_clusters_})"]
            said.append(f"three sites {ami(group, three.labels_):.3f} ({three.n_clusters_})")
            fetched = three.export().predict(schema.apply(table))
            said.append(f"codebook at sites {ami(group, fetched):.3f}")
            public = public_schema(schema)
            release = NodeRelease(4, public.require_bounds())
            private = FCAC(random_state=0, privacy=release).fit(
                table, groups="hospital", schema=public, public_groups=True
            )
            said.append(f"NodeRelease eps=4 {ami(group, private.labels_):.3f} ({private.n_clusters_})")
            plain = table.drop(columns=["patient_id", "hospital", "admitted"])
            said.append(f"k-means told k {ami(group, usual(plain, 3)):.3f}")
            print(f"  gaps {gaps:.0%} seed {seed}: " + ", ".join(said), flush=True)


def balance(seeds: int) -> None:
    print("balance: AMI (clusters); five numbers and five categories")
    for told_by in ("numbers", "categories", "both"):
        for seed in range(seeds):
            for n_groups, n_levels in ((3, 5), (5, 8), (3, 100)):
                table, group = mixed(told_by, seed, n_groups=n_groups, n_levels=n_levels)
                model = FCAC(random_state=0).fit(table, schema=Schema.guess(table))
                prototypes = ami(group, k_prototypes(table, n_groups))
                print(
                    f"  told by {told_by}, {n_groups} groups, {n_levels} levels, seed {seed}: "
                    f"{ami(group, model.labels_):.3f} ({model.n_clusters_}), k-prototypes told k {prototypes:.3f}",
                    flush=True,
                )


def gaps_at_random(seeds: int, data: str | None) -> None:
    print("gaps at random: AMI (clusters), beside filling with the mean")
    from sklearn.datasets import load_digits

    sets = {"digits": load_digits(return_X_y=True)}
    if data is not None:
        with np.load(data) as held:
            sets[Path(data).stem] = held["X"].astype(float), held["y"]
    import pandas as pd

    for name, (rows, labels) in sets.items():
        for share in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                holed = np.where(rng.random(rows.shape) < share, np.nan, rows)
                frame = pd.DataFrame(holed, columns=[f"f{j}" for j in range(rows.shape[1])])
                schema = Schema([Column(column, missing="native") for column in frame])
                model = FCAC(random_state=0).fit(frame, schema=schema)
                filled = np.where(np.isnan(holed), np.nanmean(holed, axis=0), holed)
                mean = FCAC(random_state=0).fit(filled)
                print(
                    f"  {name} {share:.0%} seed {seed}: {ami(labels, model.labels_):.3f} ({model.n_clusters_}), "
                    f"mean {ami(labels, mean.labels_):.3f} ({mean.n_clusters_})",
                    flush=True,
                )


def speed() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500_000, 10)) + 6 * rng.integers(5, size=(500_000, 1))
    holed = np.where(rng.random(rows.shape) < 0.3, np.nan, rows)
    Reservoir(10).learn(rows[:10_000], n_threads=1)
    Reservoir(10).learn(holed[:10_000], n_threads=1)
    took = []
    for some in (rows, holed):
        started = time.process_time()
        _ = Reservoir(10).learn(some, n_threads=1).nodes
        took.append(time.process_time() - started)
    whole, gaps = took
    print(f"condensing 500,000 x 10: {whole:.2f} s of CPU, {gaps:.2f} s with 30 % gaps ({gaps / whole:.2f}x)")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="hospital,balance,gaps,speed")
    parser.add_argument("--data", help="npz file with X and y, for gaps at random beside digits")
    given = parser.parse_args()
    asked = given.only.split(",")
    if "hospital" in asked:
        hospitals(given.seeds)
    if "balance" in asked:
        balance(given.seeds)
    if "gaps" in asked:
        gaps_at_random(given.seeds, given.data)
    if "speed" in asked:
        speed()


if __name__ == "__main__":
    main()
