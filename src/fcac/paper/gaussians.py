"""The paper's continual-learning experiment: three Gaussians that arrive at two sites over three rounds.

Site 1 and site 2 first both see a part of Gaussian A; then each sees more of A and meets a Gaussian of its own (B at
site 1, C at site 2); at last each sees only the rest of its own. Nothing is learned twice and nothing may be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fcac._typing import Floats, Integers
from fcac.model.fcac import FCAC
from fcac.privacy.mechanism import AnyMechanism

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
    >>> from fcac.paper.gaussians import demo_data
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
    >>> from fcac.paper.gaussians import run_demo
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
