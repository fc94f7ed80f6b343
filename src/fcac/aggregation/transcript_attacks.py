"""Attacks on secure aggregation by a hub with t colluding sites: what its transcript tells beyond the totals.

The protocol is played many times between four sites, with the shipped code. The attacker has every message that passes
the hub and all secrets and vectors of one site; it drops another one once its vector has arrived. It tries:

- *noise*: subtract what the colluder added from every total; is the noise that remains as wide as promised?
- *records*: do the totals that remain distinguish whether a record was there better than promised?
- *masks*: remove from a single site's vector every mask that can be computed, and compare the vectors of two steps; is
  what remains still uniform?
- *range*: are totals of very many rows still right, or do they wrap around?

Finding nothing proves nothing; the proof is in docs/privacy/secure-aggregation.md. The tests plant faults
(``tests/aggregation/planted_faults.py``), each of which one of the attacks must find.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from fcac._typing import Floats, Integers
from fcac.aggregation.collector import Collector
from fcac.aggregation.keys import AgreementKey, SigningKey
from fcac.aggregation.masks import Residues, own_mask, pair_mask
from fcac.aggregation.member import Assignment, Member, _Session
from fcac.aggregation.messages import MASK, REPLY, Message
from fcac.aggregation.pooled import PooledGrowth, read_task, site_vector, terms
from fcac.aggregation.roster import Roster, fewest_sites
from fcac.privacy.auditing import _log_ratio, _try_pair
from fcac.privacy.bounds import check_bounds
from fcac.privacy.cell_release import Request, Step, noise_scales
from fcac.privacy.cell_statistics import UNIT, cell_totals, to_grid
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.samplers import Sampler
from fcac.privacy.zcdp import separation

#: Called with (runs done, total runs).
Progress = Callable[[int, int], None]

#: What a site adds: (its place, its rows, the request, the number of certain shares, the source of noise).
SiteVector = Callable[[int, Integers, Request, int, Sampler], Integers]

N_SITES, TOLERANCE = 4, 1
#: The record is at the first site; the hub says in the first step that the vector of the second has not arrived.
DROPPED, COLLUDER = 1, 3

# Probability that a sound protocol is called faulty.
_FALSE_ALARM = 1e-6
# A residue below this looks like a number and not like a mask; one in 2**12 uniform ones does.
_SMALL = 2**51


@dataclass(frozen=True)
class AttackResult:
    """Outcome of one attack, which holds unless it found a fault; the verdict is a sentence for human readers."""

    name: str
    holds: bool
    verdict: str


@dataclass(frozen=True)
class AggregationAudit:
    """Outcome of all attacks."""

    holds: bool
    attacks: list[AttackResult]
    n_runs: int

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-serialisable values."""
        return asdict(self)


class Fault(NamedTuple):
    """A fault that the audit must find: a changed site, other noise, or too small a range."""

    member: type[Member] = Member
    vector: SiteVector | None = None
    bits: int = 64


def audit_aggregation(
    mechanism: NodeRelease, n_runs: int = 200, fault: Fault | None = None, progress: Progress | None = None
) -> AggregationAudit:
    """Attack the transcript of a hub that has one colluder among four sites and drops another.

    The mechanism is audited with its own epsilon, delta and noise, on two features and two cells; nothing is charged.
    There are `n_runs` test runs per side, and as many again to choose the test. A `fault` is one to be found; None
    attacks the code as shipped. `progress` is called with (runs done, total runs).
    """
    if n_runs < 20:
        raise ValueError(f"n_runs must be at least 20, got {n_runs}")
    small = copy.copy(mechanism)
    small.bounds = check_bounds([[0.0, 1.0], [0.0, 1.0]])
    small.ledger, small.n_cells = None, 2
    planted = Fault() if fault is None else fault
    watched = _Watch(small, planted)
    done, in_all = 0, 4 * n_runs

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None and (done % 10 == 0 or done == in_all):
            progress(done, in_all)

    pair = _try_pair("", watched.view, n_runs, n_runs, 1e-3, step)
    promised = separation(small.rho)
    found = pair.mu_low
    records = AttackResult(
        "records",
        found <= promised,
        f"whether a record was there: mu is at least {found:.2f}, at most {promised:.2f} is promised",
    )
    attacks = [watched.noise(), records, watched.masks(), _range_attack(small, planted)]
    return AggregationAudit(all(attack.holds for attack in attacks), attacks, n_runs)


class _Watch:
    """Plays rounds and keeps what the attacker needs of them."""

    def __init__(self, mechanism: NodeRelease, fault: Fault) -> None:
        self.mechanism, self.fault = mechanism, fault
        self._squares: list[float] = []
        self._n_small = self._n_looked = 0
        self._crowd = to_grid(np.full((20, 2), 0.05))
        self._record = to_grid(np.array([[1.0, 1.0]]))

    def view(self, with_record: bool, run: int) -> Floats:
        """Play one round; return what the hub can compute of the totals that it gets."""
        rows = [np.vstack([self._crowd, self._record]) if with_record else self._crowd] + [self._crowd] * (N_SITES - 1)
        played = _play(self.mechanism, rows, self.fault, run + 1, DROPPED)
        honest = [place for place in range(N_SITES) if place not in (DROPPED, COLLUDER)]
        steps = []
        for request, total, vectors in zip(played.requests, played.totals, played.vectors, strict=True):
            remains = total - vectors[COLLUDER]
            truth = _plain_vector(np.vstack([rows[place] for place in honest]), request)
            scale = _promised_scale(request)
            self._squares += (((remains - truth) / scale) ** 2).tolist()
            steps.append(_as_step(request, remains))
        self._look_at_masks(played)
        ratio = sum(_log_ratio(step, np.vstack([self._crowd] * len(honest)), self._record[0]) for step in steps)
        seen: list[Any] = [[ratio]]
        for step in steps:
            placed = (step.sums + step.counts[:, None] * step.bases).sum(axis=0) / UNIT
            seen += [step.counts[:1], [step.counts.sum()], placed]
        return np.concatenate(seen).astype(np.float64)

    def noise(self) -> AttackResult:
        """Is the noise as wide as promised without the shares of the colluder and of the site that was dropped?"""
        n, total = len(self._squares), math.fsum(self._squares)
        lowest = float(chi2.ppf(_FALSE_ALARM, n))
        found, least = math.sqrt(total / n), math.sqrt(lowest / n)
        return AttackResult(
            "noise",
            total >= lowest,
            f"noise left beside a colluder and a drop: {found:.3f} of what is promised, at least {least:.3f} expected",
        )

    def masks(self) -> AttackResult:
        """Did any vector of a single site show through its masks?"""
        expected = self._n_looked * _SMALL / 2.0**63
        allowed = expected + 6.0 * math.sqrt(expected) + 6.0
        return AttackResult(
            "masks",
            self._n_small <= allowed,
            f"{self._n_small} of {self._n_looked} masked numbers look like numbers; "
            f"{expected:.0f} would by chance, up to {allowed:.0f} are allowed",
        )

    def _look_at_masks(self, played: _Played) -> None:
        for place in range(N_SITES):
            if place == COLLUDER:
                continue
            here = [step for step, masked in enumerate(played.masked) if place in masked]
            for bare in (lambda step, place: played.masked[step][place], played.without_own_mask, played.peeled):
                residues = [bare(step, place) for step in here]
                for residue in residues:
                    self._count_small(residue)
                for first, second in itertools.pairwise(residues):
                    shared = min(len(first), len(second))
                    self._count_small(first[:shared] - second[:shared])

    def _count_small(self, residues: Residues) -> None:
        self._n_small += int((np.abs(residues.view(np.int64)) < _SMALL).sum())
        self._n_looked += len(residues)


class _Played(NamedTuple):
    """One round: what the hub saw, what the colluder knows, and what really happened; vectors by place, per step."""

    requests: list[Request]
    totals: list[Integers]
    vectors: list[dict[int, Integers]]
    masked: list[dict[int, Residues]]
    sessions: list[_Session]
    contexts: list[bytes]

    def without_own_mask(self, step: int, place: int) -> Residues:
        """Return a site's vector without its own mask, which the hub learns unless the site was dropped."""
        vector = self.masked[step][place].copy()
        if place != DROPPED:
            vector -= own_mask(self.sessions[place].own_seeds[step], self.contexts[step], len(vector))
        return vector

    def peeled(self, step: int, place: int) -> Residues:
        """Return the same without the masks that the hub can compute: by the colluder's key and the dropped site's."""
        vector = self.without_own_mask(step, place)
        for other in self.masked[step]:
            known = other if other in (DROPPED, COLLUDER) else place
            if other == place or known not in (DROPPED, COLLUDER):
                continue
            theirs = place if known == other else other
            key = AgreementKey(self.sessions[known].mask_seeds[step])
            public = self.sessions[known].advert(theirs).masking[step]
            mask = pair_mask(key, public, self.contexts[step], len(vector))
            if place < other:
                vector -= mask
            else:
                vector += mask
        return vector


def _play(
    mechanism: NodeRelease, rows: Sequence[Integers], fault: Fault, round: int, dropped: int | None = None
) -> _Played:
    agreed = terms(mechanism)
    names = [f"site-{i}" for i in range(len(rows))]
    keys = {name: SigningKey.new() for name in names}
    roster = Roster("audit", {name: key.public for name, key in keys.items()}, TOLERANCE, fewest_sites(TOLERANCE))
    members = {name: fault.member(name, keys[name], roster, agreed) for name in names}
    growth = PooledGrowth(mechanism, None, round)
    collector = Collector(roster, round, 1, growth.n_steps, agreed)
    make = fault.vector or _shipped_vector
    played = _Played([], [], [], [], [], [])

    def answer(place: int, request: bytes) -> bytes:
        def work(assigned: Assignment) -> Integers:
            task = read_task(assigned, mechanism)
            vector = make(place, rows[place], task, assigned.certain_shares, mechanism.sampler)
            played.vectors[-1][place] = vector
            return vector

        return members[names[place]].answer(request, work)

    def stage() -> None:
        for name, request in collector.requests().items():
            place = names.index(name)
            reply = answer(place, request)
            if collector.stage == MASK:
                played.masked[-1][place] = Message.from_bytes(reply, REPLY).arrays["masked"].view(np.uint64)
                if place == dropped:
                    continue
            collector.take(name, reply)
        collector.close_stage()

    stage()
    stage()
    # the secrets of a step are wiped when it is over
    played.sessions.extend(copy.deepcopy(_session_of(members[name])) for name in names)
    while growth.request is not None:
        played.requests.append(growth.request)
        played.vectors.append({})
        played.masked.append({})
        collector.begin_step(growth.task())
        stage()
        played.contexts.append(_session_of(members[names[0]]).step_context)
        stage()
        stage()
        assert collector.total is not None
        unused = 64 - fault.bits
        total = collector.total << unused >> unused  # as if it had been added up modulo 2**bits
        played.totals.append(total)
        growth.take(total, len(collector.survivors), collector.certain_shares)
    return played


def _session_of(member: Member) -> _Session:
    session = member._session
    assert session is not None
    return session


def _shipped_vector(place: int, rows: Integers, request: Request, n_shares: int, sampler: Sampler) -> Integers:
    return site_vector(rows, request, n_shares, sampler)


def _plain_vector(rows: Integers, request: Request) -> Integers:
    totals = cell_totals(rows, request.codebook, request.bases, request.radius)
    parts = [totals.counts, totals.sums.ravel()]
    return np.concatenate(parts if request.last else [*parts, totals.rings])


def _promised_scale(request: Request) -> Floats:
    """Return the standard deviation that the noise in every component of a total must have at least."""
    counts, sums, rings = noise_scales(request.radius, request.rho, request.last)
    n_cells, d = request.codebook.shape
    parts = [np.full(n_cells, counts), np.full(n_cells * d, sums)]
    return np.concatenate(parts if rings is None else [*parts, np.full(10, rings)])


def _as_step(request: Request, total: Integers) -> Step:
    n_cells, d = request.codebook.shape
    counts, sums, rings = np.split(total, [n_cells, n_cells * (d + 1)])
    scales = noise_scales(request.radius, request.rho, request.last)
    return Step(
        request.codebook, request.bases, request.radius, counts, sums.reshape(n_cells, d),
        None if request.last else rings, scales[0], scales[1], scales[2],
    )  # fmt: skip


def _range_attack(mechanism: NodeRelease, fault: Fault) -> AttackResult:
    """Let every site report as much as 2**27 rows at the edge of the bounds would give."""
    n_rows = 2**27

    def many(place: int, rows: Integers, request: Request, n_shares: int, sampler: Sampler) -> Integers:
        return _plain_vector(rows, request) * n_rows

    corner = to_grid(np.array([[1.0, 0.0]]))
    played = _play(mechanism, [corner] * N_SITES, Fault(fault.member, many, fault.bits), 1)
    right = all(
        [int(x) for x in total] == [N_SITES * n_rows * int(x) for x in _plain_vector(corner, request)]
        for request, total in zip(played.requests, played.totals, strict=True)
    )
    words = "are right" if right else "have wrapped around"
    return AttackResult("range", right, f"totals of {N_SITES * n_rows:,} rows at the edge of the bounds {words}")
