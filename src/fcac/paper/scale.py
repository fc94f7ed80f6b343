"""What a study of ten thousand sites costs, computed from what a few hundred cost, and checked against ten thousand.

:func:`play` runs a round of virtual sites in one process: real sites condense or release real rows, a real hub checks,
stores and closes. From small runs come unit costs (of a row at a site, of a delivery, of a node, of closing a round);
:func:`cost` multiplies them; and a run of as many sites as the study has says how far that can be trusted. TLS and the
network are not part of it.
"""

from __future__ import annotations

import json
import platform
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from fcac.persistence import write_atomic

N_FEATURES = 16
EPSILON = 1.0
#: How nodes leave a site: as they are, or released with noise.
WAYS = ("nodes", "release")
#: Nodes that a site sends at most without noise, and that the server reads at most without condensing them.
_SITE_NODES, _READ_NODES = 4000, 16_000


@dataclass(frozen=True)
class Study:
    """A study to be computed: its name, how many sites it has, and how many rows each of them."""

    name: str
    n_sites: int
    n_rows: int


STUDIES = (
    Study("10,000 sites of 1,000 rows", 10_000, 1_000),
    Study("10^9 people at 10,000 sites", 10_000, 100_000),
    Study("10^12 rows at 10,000 sites", 10_000, 100_000_000),
)


@dataclass(frozen=True)
class Sizes:
    """What is run: pairs of sites and rows of each for the hub, rows of a single site, and what is checked."""

    hub: tuple[tuple[int, int], ...] = ((200, 100), (800, 100), (200, 400))
    site: tuple[int, ...] = (100, 1_000, 20_000, 60_000)
    checked: tuple[int, int] = (10_000, 100)


#: Small runs and a check of 300 sites: a minute or two.
QUICK = Sizes(((20, 40), (60, 40), (20, 120)), (40, 2_000, 6_000), (300, 40))


# ---------------------------------------------------------------- measuring


def rows_of(site: int, n_rows: int) -> Any:
    """Return the rows of one virtual site: two of six Gaussians in a box of side one, three quarters from the first."""
    rng = np.random.default_rng([site, n_rows])
    centres = np.random.default_rng(0).uniform(0.2, 0.8, (6, N_FEATURES))
    own = centres[[site % 6, (site + 1) % 6]][(rng.random(n_rows) < 0.25).astype(int)]
    return np.clip(own + rng.normal(0, 0.04, own.shape), 0, 1)


def _mechanism(way: str) -> Any:
    if way == "nodes":
        return None
    from fcac.privacy.mechanisms.node_release import NodeRelease

    return NodeRelease(EPSILON, [[0.0, 1.0]] * N_FEATURES)


def play(n_sites: int, n_rows: int, way: str) -> dict[str, float]:
    """Play one round of virtual sites through a real hub's code and store, and return what it cost.

    Returns
    -------
    dict
        CPU seconds of all sites, of all deliveries and of closing the round (with the report), bytes of all
        deliveries, nodes of a site (mean), and how much memory the hub's process took at most, in MB.
    """
    from fcac.deployment.hub import Hub
    from fcac.deployment.settings import FederationSettings, Member
    from fcac.federation import Site
    from fcac.tables.schema import Column, Schema

    names = [f"s{number:05d}" for number in range(n_sites)]
    schema = Schema([Column(f"f{i}", min=0.0, max=1.0) for i in range(N_FEATURES)], bounds_are_public=True)
    spent, size, n_nodes = {"sites": 0.0, "deliveries": 0.0}, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        hub = Hub(Path(folder), FederationSettings(schema, members={name: Member() for name in names}))
        for number, name in enumerate(names):
            rows = rows_of(number, n_rows)
            start = time.process_time()
            contribution = Site(name, _mechanism(way)).contribute(rows, round=1)
            message = contribution.to_bytes()
            sent = time.process_time()
            verdict = hub.receive(name, message)
            spent["sites"] += sent - start
            spent["deliveries"] += time.process_time() - sent
            if verdict.outcome != "accepted":
                raise RuntimeError(f"the hub refused {name}: {verdict.reason}")
            size, n_nodes = size + len(message), n_nodes + len(contribution.nodes)
        start = time.process_time()
        hub.close_round()
        spent["closing"] = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**spent, "bytes": float(size), "nodes": n_nodes / n_sites, "hub MB": peak}


def _alone(n_sites: int, n_rows: int, way: str, queue: Any) -> None:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        play(3, 60, way)  # imports and compiling are not part of it
        queue.put(play(n_sites, n_rows, way))


def played(n_sites: int, n_rows: int, way: str) -> dict[str, float]:
    """Return what :func:`play` returns, from a process of its own, so that the peak of its memory is its own."""
    context = get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_alone, args=(n_sites, n_rows, way, queue))
    process.start()
    while process.is_alive() and queue.empty():
        process.join(0.2)
    if queue.empty():
        raise RuntimeError(f"a run of {n_sites} sites ended without a result (exit code {process.exitcode})")
    found: dict[str, float] = queue.get()
    process.join()
    return found


def one_site(n_rows: int, way: str) -> dict[str, float]:
    """Return CPU seconds, nodes and bytes of one site that answers one round."""
    from fcac.federation import Site

    Site("s", _mechanism(way)).contribute(rows_of(0, 60), round=1)
    rows = rows_of(1, n_rows)
    start = time.process_time()
    sent = Site("s", _mechanism(way)).contribute(rows, round=1)
    message = sent.to_bytes()
    return {"seconds": time.process_time() - start, "nodes": float(len(sent.nodes)), "bytes": float(len(message))}


# ---------------------------------------------------------------- computing


@dataclass(frozen=True)
class Units:
    """Unit costs of one way of sending nodes.

    Attributes
    ----------
    site : list of (rows, seconds, nodes, bytes)
        What a single site was measured to need; between these sizes costs are interpolated, beyond them seconds grow
        with the rows, and nodes and bytes do not.
    delivery, node_delivery : float
        Seconds of the hub for a delivery, and for each node in it.
    closing, site_closing, node_closing : float
        Seconds of the hub for closing a round, and what each site and each node adds.
    memory, node_memory : float
        MB of the hub's process without nodes, and what each node adds.
    """

    site: list[tuple[float, float, float, float]]
    delivery: float
    node_delivery: float
    closing: float
    site_closing: float
    node_closing: float
    memory: float
    node_memory: float


def units_of(hub: Sequence[tuple[int, int, dict[str, float]]], site: Sequence[tuple[int, dict[str, float]]]) -> Units:
    """Compute unit costs from runs of (sites, rows of each) and of single sites of some number of rows.

    Least squares, weighted so that a second of a small run counts as much as of a large one; no unit is negative.

    Examples
    --------
    >>> def run(sites, rows):
    ...     nodes = sites * rows
    ...     return {"deliveries": 0.01 * sites, "closing": 2 + 0.001 * nodes, "nodes": rows, "hub MB": 90 + 0.1 * nodes}
    >>> runs = [(sites, rows, run(sites, rows)) for sites, rows in ((10, 5), (40, 5), (10, 20))]
    >>> units = units_of(runs, [(100, {"seconds": 1.0, "nodes": 100.0, "bytes": 900.0})])
    >>> [round(unit, 6) for unit in (units.delivery, units.closing, units.node_closing, units.memory)]
    [0.01, 2.0, 0.001, 90.0]
    """
    from scipy.optimize import nnls

    n = np.array([sites for sites, _, _ in hub], float)
    nodes = np.array([sites * found["nodes"] for sites, _, found in hub])

    def fitted(key: str, *columns: Any) -> list[float]:
        y = np.array([found[key] for _, _, found in hub])
        weight = 1 / np.maximum(y, 1e-9)
        solved, _ = nnls(np.stack(columns, 1) * weight[:, None], y * weight)
        return [float(value) for value in solved]

    one = np.ones_like(n)
    return Units(
        [(float(rows), found["seconds"], found["nodes"], found["bytes"]) for rows, found in site],
        *fitted("deliveries", n, nodes),
        *fitted("closing", one, n, nodes),
        *fitted("hub MB", one, nodes),
    )


def cost(study: Study, units: Units) -> dict[str, float]:
    """Compute what one round of a study costs.

    Returns
    -------
    dict
        CPU seconds of one site and of all, bytes of one site and of all, nodes at the hub, its CPU seconds for
        deliveries and for closing, and its memory in MB.
    """
    rows, seconds, nodes, size = np.array(units.site).T
    own = float(np.interp(study.n_rows, rows, seconds))
    if study.n_rows > rows[-1]:
        slope = (seconds[-1] - seconds[-2]) / (rows[-1] - rows[-2]) if len(rows) > 1 else seconds[-1] / rows[-1]
        own += slope * (study.n_rows - rows[-1])
    sent, told = (float(np.interp(study.n_rows, rows, of)) for of in (nodes, size))
    n, all_nodes = study.n_sites, study.n_sites * sent
    return {
        "site s": own,
        "sites s": own * n,
        "site bytes": told,
        "bytes": told * n,
        "nodes": all_nodes,
        "deliveries s": units.delivery * n + units.node_delivery * all_nodes,
        "closing s": units.closing + units.site_closing * n + units.node_closing * all_nodes,
        "hub MB": units.memory + units.node_memory * all_nodes,
    }


def budget(rounds: int, epsilon: float = EPSILON, delta: float = 1e-6) -> float:
    """Return the epsilon of a person who was in so many rounds of this epsilon each.

    Examples
    --------
    >>> round(budget(1), 2), budget(12) < 12
    (1.0, True)
    """
    from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon

    return float(epsilon_from_rho(rounds * rho_from_epsilon(epsilon, delta), delta))


# ---------------------------------------------------------------- running


def run(
    out: Path, sizes: Sizes | None = None, *, say: Callable[[str], None] = print, command: str = ""
) -> dict[str, Any]:
    """Measure what is missing, compute, check, and write ``results.json`` and ``results.md``.

    Parameters
    ----------
    out : Path
        Directory of the results. Each run is kept in ``out/cells``; a stopped measurement goes on from there.
    sizes : Sizes, optional
        What is run; as published by default.
    say : callable
        Told what is being run.
    command : str
        What was typed, for the page.
    """
    sizes = sizes or Sizes()
    (out / "cells").mkdir(parents=True, exist_ok=True)

    def kept(name: str, task: Callable[[], dict[str, float]]) -> dict[str, float]:
        path = out / "cells" / f"{name}.json"
        if not path.exists():
            say(name)
            write_atomic(path, (json.dumps(task(), indent=1) + "\n").encode())
        found: dict[str, float] = json.loads(path.read_text("utf-8"))
        return found

    results: dict[str, Any] = {"sizes": sizes.__dict__, "ways": {}, "command": command or "fcac reproduce scale"}
    for way in WAYS:
        hub = [(s, r, kept(f"{way}-{s}-sites-{r}-rows", partial(played, s, r, way))) for s, r in sizes.hub]
        site = [(r, kept(f"{way}-one-site-{r}-rows", partial(one_site, r, way))) for r in sizes.site]
        units = units_of(hub, site)
        n, r = sizes.checked
        found = kept(f"{way}-{n}-sites-{r}-rows", partial(played, n, r, way))
        told = cost(Study("", n, r), units)
        results["ways"][way] = {
            "units": units.__dict__,
            "studies": {study.name: cost(study, units) for study in STUDIES},
            "check": {
                key: [said, found[measured]]
                for key, said, measured in (
                    ("CPU s of all sites", told["sites s"], "sites"),
                    ("CPU s of all deliveries", told["deliveries s"], "deliveries"),
                    ("CPU s of closing", told["closing s"], "closing"),
                    ("bytes", told["bytes"], "bytes"),
                    ("hub's memory, MB", told["hub MB"], "hub MB"),
                )
            },
        }
    results["budget"] = {str(rounds): budget(rounds) for rounds in (1, 12, 52)}
    results["machine"] = {"processor": platform.machine(), "python": platform.python_version()}
    write_atomic(out / "results.json", (json.dumps(results, indent=1) + "\n").encode())
    write_atomic(out / "results.md", page(results).encode())
    return results


_SAID = {"nodes": "nodes as they are", "release": f"released, eps = {EPSILON:g}"}


def page(results: dict[str, Any]) -> str:
    """Return the results as one Markdown page."""
    n, r = results["sizes"]["checked"]
    lines = ["# Scale on paper", ""]
    lines += [
        f"""\
What one round of a study costs that nobody has run, {N_FEATURES} features, computed from the costs of a few hundred
sites and checked against {n:,} virtual sites of {r} rows: real sites, and the code and store of a real hub, in one
process, without TLS and network. CPU seconds are of one core, on a machine that was busy with other work.""",
        "",
        "| study | what leaves a site | CPU of a site | CPU of all sites | a site sends | the hub receives | nodes "
        "| hub: deliveries | hub: closing | hub's memory |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for study in STUDIES:
        for way in WAYS:
            c = results["ways"][way]["studies"][study.name]
            lines.append(
                f"| {study.name} | {_SAID[way]} | {_time(c['site s'])} | {_time(c['sites s'])} "
                f"| {_size(c['site bytes'])} | {_size(c['bytes'])} | {c['nodes']:,.0f} "
                f"| {_time(c['deliveries s'])} | {_time(c['closing s'])} | {_size(1e6 * c['hub MB'])} |"
            )
    spent = results["budget"]
    lines += [
        "",
        f"""\
A round is one exchange: the hub asks, a site answers, the hub closes. Privacy costs the same however many sites and
people there are: a released round costs a person eps = {EPSILON:g} (delta = 1e-6), twelve rounds {spent["12"]:.1f},
52 rounds {spent["52"]:.1f}. [Sums over sites](../privacy/secure-aggregation.md) are not in the table: one takes at
most 100 sites.""",
        "",
        "## Checked",
        "",
        f"| {n:,} sites of {r} rows | " + " | ".join(f"{_SAID[way]}: computed | played | ratio" for way in WAYS) + " |",
        "|---|" + "---:|" * 3 * len(WAYS),
    ]
    for key in results["ways"][WAYS[0]]["check"]:
        cells = []
        for way in WAYS:
            said, found = results["ways"][way]["check"][key]
            cells += [f"{said:,.0f}", f"{found:,.0f}", f"{said / found:.2f}" if found else ""]
        lines.append(f"| {key} | {' | '.join(cells)} |")
    lines += ["", "## Unit costs", "", f"| | {' | '.join(_SAID[way] for way in WAYS)} |", "|---|" + "---:|" * len(WAYS)]
    for said, key, scale in (
        ("ms of the hub for a delivery", "delivery", 1e3),
        ("us of the hub for a node in it", "node_delivery", 1e6),
        ("s of the hub for closing a round", "closing", 1),
        ("ms more for each site", "site_closing", 1e3),
        ("us more for each node", "node_closing", 1e6),
        ("MB of the hub without nodes", "memory", 1),
        ("bytes more for each node", "node_memory", 1e6),
    ):
        values = [results["ways"][way]["units"][key] * scale for way in WAYS]
        lines.append(f"| {said} | {' | '.join(f'{value:,.2f}' for value in values)} |")
    for rows in results["sizes"]["site"]:
        cells = [next(s for s in results["ways"][way]["units"]["site"] if s[0] == rows)[1] for way in WAYS]
        lines.append(f"| s of a site of {rows:,} rows | {' | '.join(f'{value:.3f}' for value in cells)} |")
    machine = results["machine"]
    return "\n".join([*lines, "", f"`{results['command']}`, {machine['processor']}, Python {machine['python']}", ""])


def _time(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


def _size(n_bytes: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} B"
