"""How many functions of fcac a call walks through: ``python benchmarks/walks.py`` prints what a reader has to follow.

Counted once each: functions, modules and classes (by the first part of a method's qualified name) that run between the
call and its answer; a switch is a call from one package of ``fcac`` into another. Imports are done, and kernels are
compiled, before anything is counted. ``--list WALK`` prints the functions of one walk. Bars: 170 functions for
``FCAC().fit`` and 550 for a private round of five sites, its report included.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import fcac
from fcac import FCAC

ROOT = str(Path(fcac.__file__).parent) + "/"
SCHEMA = "fcac_schema = 1\nbounds_are_public = true\n[columns]\nx = { min = -8, max = 8 }\ny = { min = -8, max = 8 }\n"


def walk(task: Callable[[], Any]) -> tuple[set[tuple[str, str]], int]:
    """Return the functions of fcac that a task runs, as (file, qualified name), and the switches between packages."""
    found: set[tuple[str, str]] = set()
    switches = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal switches
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or not code.co_filename.endswith(".py"):
            return
        file = code.co_filename.removeprefix(ROOT)
        name = re.sub(r"\.<locals>.*|\.?<\w+>", "", code.co_qualname)
        if name:
            found.add((file, name))
        caller = frame.f_back
        if caller is not None and caller.f_code.co_filename.startswith(ROOT):
            switches += file.split("/")[0] != caller.f_code.co_filename.removeprefix(ROOT).split("/")[0]

    sys.setprofile(note)
    try:
        task()
    finally:
        sys.setprofile(None)
    return found, switches


class _DirectWire:
    """Requests are answered at once by the code that a site's process runs."""

    def __init__(self, sites: Mapping[str, Path]) -> None:
        self.sites = sites

    def connected(self) -> set[str]:
        return set(self.sites)

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | None]]:
        from fcac.deployment.answers import answer

        for site, data in sorted(requests.items()):
            yield site, answer(self.sites[site], data)

    def late(self) -> Iterator[tuple[str, bytes]]:
        return iter(())


def hub_round(folder: Path) -> Callable[[], Any]:
    """Return a task that plays a private round of a study of five sites, from stored settings to the next model."""
    from fcac.deployment import study
    from fcac.deployment.conversation import Conversation, Timeouts
    from fcac.deployment.hub import Hub
    from fcac.deployment.rehearsal import join_here
    from fcac.deployment.settings import FederationSettings
    from fcac.deployment.site_setup import site_settings

    (folder / "schema.toml").write_text(SCHEMA)
    root = study.init(folder / "study", folder / "schema.toml", timeout=1.0, wait=0.0)
    rng = np.random.default_rng(0)
    sites = {}
    for name in "abcde":
        data, state = folder / f"data-{name}", folder / f"state-{name}"
        data.mkdir()
        settings = site_settings(join_here(root, name, folder / name), data, state, epsilon=2.0, budget=100.0)
        settings.save(state / "settings.json")
        sites[name] = state / "settings.json"

    def play() -> None:
        for name in sites:
            rows = np.clip(rng.normal(rng.choice([-4.0, 4.0], size=(400, 1)), 0.5, (400, 2)), -8, 8)
            file = folder / f"data-{name}" / f"rows-{len(list((folder / f'data-{name}').iterdir()))}.csv"
            np.savetxt(file, rows, delimiter=",", header="x,y", comments="")
        hub = Hub(root / "state", FederationSettings.load(root))
        Conversation(hub, _DirectWire(sites), Timeouts(1.0, 0.0), reload=lambda: FederationSettings.load(root)).play(1)

    return play


def walks() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the walks that are counted, by name; each has been walked once before."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(centre, 0.3, (500, 4)) for centre in (0.0, 4.0)])
    model = FCAC(random_state=0).fit(X)
    model.predict(X)
    yield "fit", lambda: FCAC(random_state=0).fit(X)
    yield "predict", lambda: model.predict(X)
    with tempfile.TemporaryDirectory() as folder:
        play = hub_round(Path(folder))
        play()
        yield "private round of five sites", play


def main() -> None:
    """Print what each walk touches."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", dest="shown", metavar="WALK", help="print the functions of this walk")
    shown = parser.parse_args().shown
    for name, task in walks():
        if shown not in (None, name):
            continue
        found, switches = walk(task)
        classes = {(file, function.split(".")[0]) for file, function in found if "." in function}
        files = {file for file, _ in found}
        print(f"{name}: {len(found)} functions, {len(files)} modules, {len(classes)} classes, {switches} switches")
        if shown is not None:
            for file, function in sorted(found):
                print(f"  {file} {function}")
        else:
            rooms = Counter(file.split("/")[0] for file, _ in found)
            print("  " + ", ".join(f"{room} {n}" for room, n in rooms.most_common()))


if __name__ == "__main__":
    main()
