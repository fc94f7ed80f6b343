"""The demo's two parts: the paper's continual-learning experiment, and patients of three clinics under privacy.

In the first, three Gaussians arrive at two sites over three rounds.

Site 1 and site 2 first both see a part of Gaussian A; then each sees more of A and meets a Gaussian of its own (B at
site 1, C at site 2); at last each sees only the rest of its own. Nothing is learned twice and nothing may be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcac._typing import Floats, Integers
from fcac.model.fcac import FCAC
from fcac.privacy.mechanism import AnyMechanism
from fcac.tables.schema import Column, Schema

GAUSSIANS = ("A", "B", "C")
N_POINTS = 15_000
_CENTRES = ((0.5, 0.75), (0.25, 0.3), (0.75, 0.3))
_SPREAD = 0.08
_N_PARTS = (4, 2, 2)
# Per round and site: which parts arrive, as (Gaussian, part).
_SCHEDULE: tuple[dict[str, tuple[tuple[int, int], ...]], ...] = (
    {"site 1": ((0, 0),), "site 2": ((0, 1),)},
    {"site 1": ((0, 2), (1, 0)), "site 2": ((0, 3), (2, 0))},
    {"site 1": ((1, 1),), "site 2": ((2, 1),)},
)


@dataclass(frozen=True)
class DemoRound:
    """What arrives in one round.

    Attributes
    ----------
    number : int
        From 1.
    rows : dict of site name to array of shape (n, 2)
    gaussians : dict of site name to array of shape (n,)
        Which Gaussian (position in :data:`GAUSSIANS`) each row comes from; for judging only, no model sees it.
    """

    number: int
    rows: dict[str, Floats]
    gaussians: dict[str, Integers]


@dataclass(frozen=True)
class DemoResult:
    """The model after three rounds, and the data that made it.

    Attributes
    ----------
    model : FCAC
        Its server keeps the contributions of all rounds, from which the report and the figures replay every round.
    rounds : list of DemoRound
    """

    model: FCAC
    rounds: list[DemoRound]

    @property
    def rows(self) -> dict[str, Floats]:
        """All rows of every site, in the order they came."""
        return {site: np.concatenate([r.rows[site] for r in self.rounds]) for site in self.rounds[0].rows}

    def points(self, round: int | None = None) -> tuple[Floats, Integers]:
        """Return the points and their Gaussians, of one round or of all."""
        chosen = [r for r in self.rounds if round is None or r.number == round]
        if not chosen:
            raise ValueError(f"round must be 1 to {len(self.rounds)} or None, got {round!r}")
        points = np.concatenate([rows for r in chosen for rows in r.rows.values()])
        return points, np.concatenate([labels for r in chosen for labels in r.gaussians.values()])


def demo_data(seed: int = 0) -> Iterator[DemoRound]:
    """Yield the three rounds of the experiment.

    Three 2-D normals of 15,000 points each, standard deviation .08, scaled together to [0, 1]. A is cut into four
    parts, B and C into two. Round 1: A1 to site 1, A2 to site 2. Round 2: A3 and B1 to site 1, A4 and C1 to site 2,
    shuffled within the site. Round 3: B2 to site 1, C2 to site 2.

    Parameters
    ----------
    seed : int, default=0

    Yields
    ------
    DemoRound

    Examples
    --------
    >>> from fcac.model.demo import demo_data
    >>> [{site: len(rows) for site, rows in r.rows.items()} for r in demo_data()]
    [{'site 1': 3750, 'site 2': 3750}, {'site 1': 11250, 'site 2': 11250}, {'site 1': 7500, 'site 2': 7500}]
    """
    rng = np.random.default_rng(seed)
    points = np.stack([rng.normal(centre, _SPREAD, size=(N_POINTS, 2)) for centre in _CENTRES])
    low, high = points.min(axis=(0, 1)), points.max(axis=(0, 1))
    points = (points - low) / (high - low)
    parts = [np.split(points[g], _N_PARTS[g]) for g in range(len(GAUSSIANS))]
    for number, arrivals in enumerate(_SCHEDULE, start=1):
        rows, gaussians = {}, {}
        for site, pieces in arrivals.items():
            together = np.concatenate([parts[g][k] for g, k in pieces])
            labels = np.concatenate([np.full(len(parts[g][k]), g) for g, k in pieces])
            order = rng.permutation(len(together)) if len(pieces) > 1 else np.arange(len(together))
            rows[site], gaussians[site] = together[order], labels[order]
        yield DemoRound(number, rows, gaussians)


def run_demo(
    seed: int = 0,
    server: str = "communities",
    privacy: AnyMechanism | None = None,
    progress: Callable[[int], None] | None = None,
) -> DemoResult:
    """Play the three rounds.

    Parameters
    ----------
    seed : int, default=0
        Of the data and of the server's shuffle.
    server : {"communities", "cae-fc"}, default="communities"
        The paper's experiment is "cae-fc".
    privacy : mechanism, optional
    progress : callable, optional
        Called with the number of rounds played.

    Returns
    -------
    DemoResult

    Examples
    --------
    >>> from fcac.model.demo import run_demo
    >>> result = run_demo(seed=0)
    >>> result.model.n_rounds_, result.model.server_.sites
    (3, ['site 1', 'site 2'])
    """
    model, rounds = FCAC(server=server, privacy=privacy, random_state=seed), []
    for arriving in demo_data(seed):
        model.partial_fit(arriving.rows)
        rounds.append(arriving)
        if progress is not None:
            progress(arriving.number)
    return DemoResult(model, rounds)


#: Rows at each clinic.
N_PATIENTS = 3000
EPSILON = 4.0
_CODES = ("E11", "I10", "N18", "O80")
# Four kinds of patients: age, creatinine and HbA1c of the typical one, and the code most of them have.
_KINDS = ((62, 90, 68, 0), (48, 80, 37, 1), (74, 190, 42, 2), (29, 60, 35, 3))
_SPREADS = (6.0, 13.0, 4.0)
# How often each kind comes at each clinic.
_CLINICS = {"north": (0.2, 0.4, 0.3, 0.1), "south": (0.3, 0.5, 0.2, 0.0), "west": (0.2, 0.3, 0.2, 0.3)}
_RIGHT_CODE = 0.97

#: What the columns mean at all clinics; every constant is public knowledge.
SCHEMA = Schema(
    [
        Column("age", kind="number", min=18, max=98, scaling="range", unit="years"),
        Column("creatinine", kind="number", min=30, max=400, scaling="range", unit="µmol/l"),
        Column("HbA1c", kind="number", min=20, max=130, scaling="range", unit="mmol/mol"),
        Column("diagnosis", kind="category", categories=_CODES, scaling="range"),
    ],
    bounds_are_public=True,
)


def clinic_tables(seed: int = 0) -> dict[str, Any]:
    """Return one Arrow table per clinic, with the columns of :data:`SCHEMA`.

    >>> {name: (table.num_rows, table.column_names) for name, table in clinic_tables().items()}["west"]
    (3000, ['age', 'creatinine', 'HbA1c', 'diagnosis'])
    """
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    typical = np.array(_KINDS, dtype=np.float64)
    tables = {}
    for name, shares in _CLINICS.items():
        kind = rng.choice(len(_KINDS), p=shares, size=N_PATIENTS)
        values = typical[kind, :3] + rng.normal(size=(N_PATIENTS, 3)) * _SPREADS
        code = np.where(rng.random(N_PATIENTS) < _RIGHT_CODE, typical[kind, 3], rng.integers(4, size=N_PATIENTS))
        bounds = np.array([[18, 98], [30, 400], [20, 130]])
        age, creatinine, hba1c = np.clip(np.rint(values), bounds[:, 0], bounds[:, 1]).T
        diagnosis = np.array(_CODES)[code.astype(int)]
        tables[name] = pa.table({"age": age, "creatinine": creatinine, "HbA1c": hba1c, "diagnosis": diagnosis})
    return tables


def fit_clinics(seed: int = 0) -> FCAC:
    """Cluster the clinics' patients of a seed; what leaves a clinic is differentially private, with random noise."""
    from fcac.privacy import NodeRelease

    model = FCAC(privacy=NodeRelease(EPSILON, SCHEMA.require_bounds()), random_state=seed)
    pieces = ((name, SCHEMA.apply(table)) for name, table in clinic_tables(seed).items())
    return model.play_stream(pieces, SCHEMA.n_features, SCHEMA.feature_names, schema=SCHEMA)
