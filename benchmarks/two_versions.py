"""How fast this version is beside another one, in one run: ratios of CPU time.

    python benchmarks/two_versions.py OTHER/src [--turns 15] [--only WORDS] [--out FILE]

OTHER is a checkout of the other version (``git worktree add OTHER REVISION``). A process of each version is handed the
same jobs in turn, so that whatever disturbs one disturbs the other. The median of the ratios of neighbouring turns
counts. Everything runs on one core; the first turn compiles and is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np

HERE = Path(__file__).resolve().parents[1] / "src"


def jobs() -> dict[str, Callable[[], object]]:
    """Return the jobs of ``speed.py`` that both versions know; each takes a few tenths of a second."""
    from sklearn.datasets import load_digits

    from fcac import CAE, CAEFC, FCAC, CAPlus
    from speed_data import blobs, images

    rng = np.random.default_rng(0)
    tables = {
        "2-D normal": rng.normal(size=(16_000, 2)),
        "8-D normal": rng.normal(size=(4000, 8)),
        "16-D blobs": blobs(6000, 16, 400),
        "digits": rng.permutation(load_digits().data),
        "images": images(1500),
    }
    made: dict[str, Callable[[], object]] = {}
    for name, X in tables.items():
        for label, kind in (("CA+", CAPlus), ("CAE", CAE), ("CAE_FC", CAEFC)):
            made[f"{label} fit, {name}"] = lambda kind=kind, X=X: kind().fit(X)
        model = CAPlus().fit(X)
        queries = np.ascontiguousarray(np.tile(X, (4, 1)))
        made[f"CA+ predict, {name}"] = lambda model=model, queries=queries: model.predict(queries)
    for name, X in (("", tables["2-D normal"]), (", ten times the rows", rng.normal(size=(160_000, 2)))):
        groups = np.arange(len(X)) % 5
        fitted = FCAC(server="cae-fc", random_state=0, n_jobs=1).fit(X, groups=groups)
        made[f"paper's server, 5 sites{name}"] = lambda X=X, groups=groups: FCAC(
            server="cae-fc", random_state=0, n_jobs=1
        ).fit(X, groups=groups)
        made[f"paper's server, predict{name}"] = lambda fitted=fitted, X=X: fitted.predict(X)
    return made


def work() -> None:
    """Do each job whose name comes in, and answer with the CPU seconds it took."""
    known = jobs()
    print(json.dumps(list(known)), flush=True)
    for line in sys.stdin:
        start = time.process_time()
        known[line.rstrip("\n")]()
        print(time.process_time() - start, flush=True)


class Version:
    """A process in which one version of fcac works."""

    def __init__(self, source: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(Path(__file__).parent)])},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.jobs: list[str] = json.loads(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a version ended with code {self.process.wait()}")
        return line

    def time(self, job: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{job}\n")
        self.process.stdin.flush()
        return float(self._answer())

    def stop(self) -> None:
        self.process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--only", default="", metavar="WORDS", help="jobs whose names contain these words")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    ours, theirs = Version(HERE), Version(args.other.resolve())
    found = {}
    try:
        for job in (name for name in ours.jobs if args.only in name):
            pairs = [(ours.time(job), theirs.time(job)) for _ in range(args.turns + 1)][1:]
            ratio = float(np.median([new / old for new, old in pairs]))
            least = [min(column) for column in zip(*pairs, strict=True)]
            found[job] = {"ratio": round(ratio, 3), "ratio of the least": round(least[0] / least[1], 3)}
            found[job] |= {"ms": round(1000 * least[0], 2), "ms of the other": round(1000 * least[1], 2)}
            print(f"{job:32} {ratio:6.3f}  (least {least[0] / least[1]:6.3f}, {1000 * least[0]:8.2f} ms)", flush=True)
            if args.out is not None:
                args.out.write_text(json.dumps(found, indent=1) + "\n")
    finally:
        ours.stop()
        theirs.stop()
    ratios = [item["ratio"] for item in found.values()]
    print(f"geometric mean {np.exp(np.mean(np.log(ratios))):.3f}, largest {max(ratios):.3f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--work"]:
        work()
    else:
        main()
