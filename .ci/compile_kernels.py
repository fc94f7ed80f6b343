"""Compile the package's kernels into their cache by using each once, so that tests side by side need not.

``make test`` does this while ``make check`` runs. Without it, every process that meets a kernel first compiles it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

import fcac
from fcac import CAE, CAEFC, FCAC, CAPlus
from fcac.clusters import Communities
from fcac.nodes import Reservoir, Trail
from fcac.paper.networks.inside import INSIDE
from fcac.report import write_report


def rows(n: int, d: int, seed: int) -> np.ndarray:
    """Return rows around a few centres."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-8, 8, size=(8, d))[rng.integers(8, size=n)] + rng.normal(size=(n, d))


def use_networks() -> None:
    """Learn and predict with the clusterers of the paper, and with those it is compared with."""
    for model in (CAPlus(), CAE(), CAEFC(), *map(clone, INSIDE.values())):
        model.fit(rows(600, 2, 0)).predict(rows(50, 2, 1))
    CAEFC().fit(rows(600, 2, 0)).transform(rows(50, 2, 1))


def use_estimator() -> None:
    """Learn at sites with either server, in rounds; draw a report."""
    for server in ("cae-fc", "communities"):
        model = FCAC(server=server, random_state=0).fit({name: rows(800, 2, ord(name)) for name in "ab"})
        model.partial_fit({"a": rows(400, 2, 3)})
        model.predict(rows(50, 2, 4))
        with tempfile.TemporaryDirectory() as folder:
            write_report(model, Path(folder) / "report.html")


def use_reservoir() -> None:
    """Condense more rows than there may be nodes, with and without gaps."""
    whole = rows(20_000, 3, 5)
    for given in (whole, np.where(np.random.default_rng(0).random(whole.shape) < 0.1, np.nan, whole)):
        trail = Trail()
        state = Reservoir(3, 300).learn(given, trail=trail)
        state.nodes_of(trail)
        Reservoir.merge([state, Reservoir(3, 300).learn(given[::-1])]).condensed(5)


def use_read_out() -> None:
    """Read out few and very many nodes of few and many features, anew and after a change; a number is asked for."""
    for n, d in ((2000, 3), (2000, 40), (24_000, 2)):
        sites = dict(enumerate(np.split(rows(n, d, 7), 20)))
        model = Communities().update({k: (part, np.ones(len(part))) for k, part in sites.items()})
        model.fit().drop_site(0)
        model.update({1: (sites[1] + 0.1, np.ones(len(sites[1])))}).fit().alternatives()
        model.clusters_at(2)


def not_compiled() -> list[str]:
    """Return the kernels that have not been used."""
    found = []
    for info in pkgutil.walk_packages(fcac.__path__, "fcac."):
        if info.name.startswith(("fcac.spark", "fcac.__main__")):
            continue
        module = sys.modules.get(info.name) or importlib.import_module(info.name)
        for name, value in vars(module).items():
            cached: Any = getattr(value, "_cache", None)
            if type(cached).__name__ == "_KernelCache" and value.__module__ == info.name and not value.overloads:
                found.append(f"{info.name}.{name}")
    return found


if __name__ == "__main__":
    use_networks()
    use_estimator()
    use_reservoir()
    use_read_out()
    left = not_compiled()
    if left:
        print("compiled all kernels but", ", ".join(left))
