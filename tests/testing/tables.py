"""Tables as sites have them, with known groups: a hospital's, and mixed columns of which some tell the groups."""

from __future__ import annotations

import numpy as np
import pandas as pd

LABS = ("haemoglobin", "sodium", "creatinine", "crp")


def hospital(seed: int = 0, gaps: float = 0.3, n: int = 6000, apart: float = 1.5) -> tuple[pd.DataFrame, np.ndarray]:
    """Return patients of three hospitals and the hidden group of each.

    Id, age, sex, a diagnosis code, four laboratory values with gaps (one of them skewed), a flag and a date; sex and
    date have nothing to do with the groups.
    """
    rng = np.random.default_rng(seed)
    group = rng.choice(3, size=n, p=[0.4, 0.35, 0.25])
    codes = np.array([["I10", "I21", "I50"], ["J18", "J44", "J45"], ["N17", "N18", "N39"]])
    own = rng.random(n) < 0.95
    code = np.where(own, codes[group, rng.integers(3, size=n)], codes[rng.integers(3, size=n), rng.integers(3, size=n)])
    means = apart * np.array([[0.0, 0.0, 0.0, 0.0], [2.5, 0.0, 2.0, -1.0], [0.0, 2.5, -2.0, 1.5]])
    labs = means[group] + rng.normal(size=(n, 4))
    labs = labs * [1.2, 4.0, 0.3, 0.5] + [13.0, 138.0, 2.5, 2.0]
    labs[:, 3] = np.exp(labs[:, 3])
    labs[rng.random((n, 4)) < gaps] = np.nan
    table = pd.DataFrame(
        {
            "patient_id": [f"P{number:06d}" for number in range(n)],
            "age": np.clip(rng.normal(np.array([45, 60, 72])[group], 9), 18, 100).round(),
            "sex": rng.choice(["f", "m"], size=n),
            "diagnosis": code,
            **dict(zip(LABS, labs.round(2).T, strict=True)),
            "emergency": rng.random(n) < np.array([0.1, 0.4, 0.9])[group],
            "admitted": (pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(900, size=n), unit="D")).strftime(
                "%Y-%m-%d"
            ),
            "hospital": rng.choice(["north", "south", "west"], size=n),
        }
    )
    return table, group


def mixed(
    told_by: str, seed: int = 0, n: int = 3000, n_groups: int = 3, n_levels: int = 5
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return five numbers and five categories whose groups show in "numbers", in "categories" or in "both"."""
    rng = np.random.default_rng(seed)
    group = rng.integers(n_groups, size=n)
    numbers, levels = rng.normal(size=(n, 5)), rng.integers(n_levels, size=(n, 5))
    if told_by != "categories":
        far = 5.5 if told_by == "numbers" else 4.0
        centres = np.zeros((n_groups, 5))
        while min(np.linalg.norm(a - b) for i, a in enumerate(centres) for b in centres[:i]) < far:
            centres = rng.normal(scale=far / 2, size=(n_groups, 5))
        numbers += centres[group]
    if told_by != "numbers":
        own = np.stack([rng.permutation(max(n_levels, n_groups))[:n_groups] for _ in range(5)], axis=1) % n_levels
        typical = rng.random((n, 5)) < (0.85 if told_by == "categories" else 0.75)
        levels = np.where(typical, own[group], levels)
    columns = {f"n{j}": numbers[:, j] for j in range(5)} | {f"c{j}": [f"v{v}" for v in levels[:, j]] for j in range(5)}
    return pd.DataFrame(columns), group
