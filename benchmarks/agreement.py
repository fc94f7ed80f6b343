"""How near an agreement on bounds, centre, spread and levels comes to the true ones, by rows a site and epsilon.

    python benchmarks/agreement.py

Three sites; five columns of numbers (one skewed, one with 30 % gaps, one of both signs) and two categories (five
levels, and a hundred of unequal frequency). Every line is over 8 seeds. The noise is that of the repeatable test
sampler, with the scales of the real one.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fcac.exceptions import SchemaError
from fcac.privacy.agreement import agree
from fcac.privacy.samplers import InsecureTestSampler
from fcac.tables.column import Column
from fcac.tables.schema import Schema

NUMBERS = ("age", "height", "crp", "sodium", "balance")
SCHEMA = Schema(
    [*(Column(name, missing="native") for name in NUMBERS), *(Column(n, kind="category") for n in ("ward", "icd"))]
)
SEEDS = 8


def table(rng: np.random.Generator, n: int) -> pd.DataFrame:
    codes = np.array([f"{letter}{number:02d}" for letter in "EIJKM" for number in range(20)])
    return pd.DataFrame(
        {
            "age": np.clip(rng.normal(55, 18, n), 0, 105),
            "height": rng.normal(170, 10, n),
            "crp": rng.lognormal(1.5, 1.2, n),
            "sodium": np.where(rng.random(n) < 0.3, np.nan, rng.normal(140, 3, n)),
            "balance": rng.normal(0, 400, n),
            "ward": rng.choice(["icu", "er", "gp", "surgery", "rare"], n, p=[0.4, 0.3, 0.2, 0.095, 0.005]),
            "icd": codes[np.minimum(rng.geometric(0.12, n) - 1, 99)],
        }
    )


def one_line(n: int, epsilon: float) -> str:
    found, levels, codes, failed = [], [], [], 0
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        tables = {site: table(rng, n) for site in "abc"}
        everybody = pd.concat(tables.values())
        try:
            agreed = agree(SCHEMA, tables, epsilon, sampler=InsecureTestSampler(seed))
        except SchemaError:
            failed += 1
            continue
        columns = {column.name: column for column in agreed.fields}
        for name in NUMBERS:
            values, column = everybody[name].dropna().to_numpy(), columns[name]
            first, last = np.quantile(values, [0.15866, 0.84134])
            usual = (last - first) / 2  # the standard deviation of a normal column
            inside = ((values >= column.min) & (values <= column.max)).mean()
            found.append((abs(column.center - values.mean()) / values.std(), column.spread / usual, inside))
        share = everybody["icd"].value_counts(normalize=True)
        levels.append(len(columns["ward"].categories or ()))
        codes.append(share[list(columns["icd"].categories or ())].sum())
    if not found:
        return f"| {n:,} | {epsilon:g} | {failed} of {SEEDS} | | | | | |"
    off, spread, inside = np.array(found).T
    low, middle, high = np.quantile(spread, [0.05, 0.5, 0.95])
    return (
        f"| {n:,} | {epsilon:g} | {failed} of {SEEDS} | {off.mean():.2f} | {middle:.2f} ({low:.2f} to {high:.2f}) | "
        f"{100 * inside.mean():.0f} % | {np.mean(levels):.1f} of 5 | {100 * np.mean(codes):.0f} % |"
    )


def main() -> None:
    heads = ("rows a site", "epsilon", "failed", "centre off by", "spread, of the true one", "rows within bounds")
    print(f"| {' | '.join(heads)} | wards | codes |")
    print("|---|---|---|---|---|---|---|---|")
    for n in (500, 2000, 10_000):
        for epsilon in (0.25, 0.5, 1.0, 2.0):
            print(one_line(n, epsilon), flush=True)


if __name__ == "__main__":
    main()
