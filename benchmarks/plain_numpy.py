"""The same rules in plain NumPy, one point at a time: the yardstick a reader can check against the text.

It is written for clarity, keeps edges in a dictionary, and shares no code with the package; tests compare the two.
"""

from __future__ import annotations

import numpy as np


class PlainNetwork:
    """CA+ (`topological=False`), CAE_FC or CAE by the book."""

    def __init__(self, topological, one_minus_cim=False, min_nodes=10, diversity=1e-6, age_iqr_factor=0.1):
        self.topological, self.one_minus_cim = topological, one_minus_cim
        self.min_nodes, self.diversity, self.age_iqr_factor = min_nodes, diversity, age_iqr_factor
        self.nodes = self.counts = self.widths = None
        self.recency: list[int] = []
        self.edges: dict[frozenset, int] = {}
        self.threshold, self.n_active = 1.0, np.inf
        self.n_deleted, self.mean_deleted = 0, 0.0
        self.seen = 0

    def fit(self, points):
        points = np.asarray(points, dtype=float)
        d = points.shape[1]
        self.nodes, self.counts, self.widths = np.empty((0, d)), np.empty(0, int), np.empty(0)
        self.last_width = bandwidth(points[:10])
        self.similarity = np.empty((0, 0))
        for x in points:
            self._learn(x)
        return self

    def cim(self, x):
        s = self.widths.mean()
        c = np.exp(-((x - self.nodes) ** 2) / (2 * s**2)).mean(axis=1)
        return np.sqrt(np.maximum(1 - c, 0.0))

    def _active(self):
        return self.recency[: int(min(self.n_active, len(self.recency)))]

    def _append(self, x):
        self.nodes = np.vstack([self.nodes, x])
        self.counts = np.append(self.counts, 1)
        self.widths = np.append(self.widths, self.last_width)
        self.recency.insert(0, len(self.counts) - 1)

    def _learn(self, x):
        if self.n_active == np.inf or len(self.counts) < self.n_active:
            self._append(x)
            if self.n_active == np.inf:
                self._test_diversity(x)
            if len(self.counts) == self.n_active:
                self._set_threshold()
        else:
            cim = self.cim(x)
            order = np.argsort(cim, kind="stable")
            s1 = order[0]
            s2, cim2 = (order[1], cim[order[1]]) if len(order) > 1 else (-1, np.inf)
            if self.threshold < cim[s1]:
                self._append(x)
                self.last_width = self.widths[-1] = bandwidth(self.nodes[self._active()])
            else:
                self.counts[s1] += 1
                self.nodes[s1] += (x - self.nodes[s1]) / self.counts[s1]
                self.recency.remove(s1)
                self.recency.insert(0, s1)
                if self.topological:
                    self._update_edges(x, s1, s2 if cim2 <= self.threshold else -1)
                elif cim2 <= self.threshold:
                    self.nodes[s2] += (x - self.nodes[s2]) / (100 * self.counts[s2])
        self.seen += 1
        if self.topological and len(self.counts) > 1 and self.seen % (2 * self.n_active) == 0:
            self._delete_isolated()

    def _test_diversity(self, x):
        cim = self.cim(x)
        row = 1 - cim if self.one_minus_cim else 1 - cim**2
        k = len(row)
        grown = np.empty((k, k))
        grown[:-1, :-1] = self.similarity
        grown[-1], grown[:, -1] = row, row
        self.similarity = grown
        if k >= 2 and k >= self.min_nodes and np.linalg.det(np.exp(grown)) < self.diversity:
            self.n_active = k

    def _set_threshold(self):
        self.last_width = bandwidth(self.nodes[self._active()])
        self.widths[:] = self.last_width
        nearest = []
        for k in range(len(self.counts)):
            cim = self.cim(self.nodes[k])
            cim[cim == 0] = 1.0
            nearest.append(cim.min())
        self.threshold = np.mean(nearest)

    def _update_edges(self, x, s1, s2):
        for edge in self.edges:
            if s1 in edge:
                self.edges[edge] += 1
        if s2 >= 0:
            self.edges[frozenset((s1, s2))] = 1
            for edge in self.edges:
                if s1 in edge:
                    (k,) = edge - {s1}
                    self.nodes[k] += (x - self.nodes[k]) / (10 * self.counts[k])
        own = [edge for edge in self.edges if s1 in edge]
        ages = np.array([self.edges[edge] for edge in own])
        if not len(ages):
            return
        middle = np.median(ages)
        below, above = ages[ages < middle], ages[ages > middle]
        if not len(below) or not len(above):
            return
        q1, q3 = np.median(below), np.median(above)
        ratio = self.n_deleted / (self.n_deleted + len(own))
        limit = self.mean_deleted * ratio + (q3 + self.age_iqr_factor * (q3 - q1)) * (1 - ratio)
        going = [self.edges.pop(edge) for edge in own if self.edges[edge] > limit]
        if going:
            total = self.mean_deleted * self.n_deleted + sum(going)
            self.n_deleted += len(going)
            self.mean_deleted = total / self.n_deleted

    def _delete_isolated(self):
        linked = {k for edge in self.edges for k in edge}
        keep = [k for k in range(len(self.counts)) if k in linked]
        position = {k: i for i, k in enumerate(keep)}
        self.nodes, self.counts, self.widths = self.nodes[keep], self.counts[keep], self.widths[keep]
        self.recency = [position[k] for k in self.recency if k in position]
        self.edges = {frozenset(position[k] for k in edge): age for edge, age in self.edges.items()}


def bandwidth(points):
    """Silverman's rule, median over features."""
    n, d = points.shape
    std = points.std(axis=0, ddof=1) if n > 1 else np.zeros(d)
    std = np.where(std == 0, 1e-6, std)
    return np.median((4 / (2 + d)) ** (1 / (4 + d)) * std * n ** (-1 / (4 + d)))
