"""Sites and a hub for tests of secure aggregation, joined by plain function calls."""

from __future__ import annotations

import numpy as np

from fcac.aggregation import Collector, Member, Roster, SigningKey
from fcac.aggregation.messages import MASK
from fcac.aggregation.roster import fewest_sites

TERMS = b"terms of the study"


class Parties:
    """A hub and n members that add up given vectors; answers can be lost on the way."""

    def __init__(self, n_sites, tolerance, n_steps=2, size=7, seed=0, least=None, round=1, attempt=1):
        rng = np.random.default_rng(seed)
        self.keys = {f"site-{i:03d}": SigningKey.new() for i in range(n_sites)}
        public = {name: key.public for name, key in self.keys.items()}
        self.roster = Roster("trial", public, tolerance, least or fewest_sites(tolerance))
        self.members = {n: Member(n, key, self.roster, TERMS) for n, key in self.keys.items()}
        self.hub = Collector(self.roster, round, attempt, n_steps, TERMS)
        self.vectors = {n: rng.integers(-(10**9), 10**9, size=(n_steps, size)) for n in self.keys}
        self.gone, self.drawn, self.assigned = set(), [], []

    def answer(self, name, request):
        def work(assigned):
            self.drawn.append((name, assigned.step))
            self.assigned.append(assigned)
            return self.vectors[name][assigned.step - 1]

        return self.members[name].answer(request, work)

    def stage(self, lose=None):
        """Play one stage; `lose(name)` says whether a site vanishes with its answer."""
        if self.hub.stage == MASK and not self.hub._task:
            self.hub.begin_step(f"task {self.hub.step + 1}".encode())
        for name, request in self.hub.requests().items():
            if name in self.gone:
                continue
            reply = self.answer(name, request)
            if lose is not None and lose(name):
                self.gone.add(name)
            else:
                self.hub.take(name, reply)
        self.hub.close_stage()

    def setup(self):
        """Play the stages before the first step."""
        self.stage()
        self.stage()

    def expected(self):
        """The sum of the vectors that the hub says are in its total."""
        names = [self.roster.names[place] for place in self.hub.survivors]
        return sum(self.vectors[name][self.hub.step - 1] for name in names)
