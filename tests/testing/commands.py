"""Running the program's commands in this process."""

from __future__ import annotations

import pytest

from fcac.cli import run


def fcac(capfd: pytest.CaptureFixture[str], *args: object, code: int = 0) -> str:
    """Run a command that must end with this code; return what it printed, or said of its failure."""
    got = run([str(arg) for arg in args])
    out, err = capfd.readouterr()
    assert got == code, f"{out}\n{err}"
    assert "Traceback" not in err
    return out if code == 0 else err
