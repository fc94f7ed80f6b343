"""Adding a server or a mechanism means adding one file: a test adds one of each and touches nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fcac

SERVER = '''
"""``server="one-each"``: every node is a cluster of its own."""

import numpy as np

from fcac.federation.readout import LatestNodes


class OneEach(LatestNodes):
    title = "one cluster a node"

    def cluster(self, nodes, counts):
        return np.arange(len(nodes))
'''

MECHANISM = '''
"""``Rounded``: rows are rounded to whole numbers; no guarantee."""

import numpy as np

from fcac.privacy.mechanism import Mechanism


class Rounded(Mechanism):
    kind = "row"
    title = "rounding"
    _fields = ("epsilon",)

    def __init__(self, epsilon=1.0):
        self.epsilon = epsilon

    def perturb(self, rows, *, site=None, round=None):
        return np.rint(rows)
'''

USE = """
import sys
import numpy as np
from pathlib import Path
from fcac import FCAC, load, save
from fcac.cli import run
from fcac.federation import readouts
from fcac.privacy import mechanisms
from fcac.privacy.mechanisms.rounded import Rounded

assert readouts.names() == ["cae-fc", "communities", "one-each"], readouts.names()
assert mechanisms.names() == ["LocalNoise", "NodeRelease", "PaperLaplace", "Rounded"], mechanisms.names()
folder = Path(sys.argv[1])
rows = np.random.default_rng(0).normal(size=(400, 2)) * 5
model = FCAC(server="one-each", privacy=Rounded(), random_state=0).fit(rows, groups=np.arange(400) % 2)
assert model.n_clusters_ == len(model.server_.nodes)
assert (model.server_.nodes[:5] == np.rint(model.server_.nodes[:5])).any()
model.partial_fit({2: rows}).forget(2)
save(model, folder / "m.fcac")
again = load(folder / "m.fcac")
assert (again.predict(rows) == model.predict(rows)).all() and again.privacy == Rounded()
assert run(["inspect", str(folder / "m.fcac")]) == 0
assert run(["report", str(folder / "m.fcac"), "--out", str(folder / "r.html")]) == 0
(folder / "x.csv").write_text("a,b\\n" + "\\n".join(f"{a},{b}" for a, b in rows))
assert run(["fit", str(folder / "x.csv"), "--server", "one-each", "--out", str(folder / "n.fcac")]) == 0
assert run(["fit", str(folder / "x.csv"), "--server", "one-each", "--clusters", "3", "-o", str(folder / "o.fcac")]) == 2
"""


@pytest.mark.slow
def test_a_server_and_a_mechanism_are_one_file_each(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "fcac"
    shutil.copytree(Path(fcac.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc"))
    (package / "federation" / "readouts" / "one_each.py").write_text(SERVER)
    (package / "privacy" / "mechanisms" / "rounded.py").write_text(MECHANISM)
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path)],
        env={"PYTHONPATH": str(tmp_path / "lib"), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
