"""A whole federation on one machine, with one command."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing import federation_study  # noqa: F401  (skips where the extra is not installed)

from fcac.cli import run  # isort: skip
from fcac.deployment.rehearsal import Rehearsal  # isort: skip


def test_a_folder_of_its_own_is_needed(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("do not touch")
    with pytest.raises(ValueError, match="is not empty"):
        Rehearsal(tmp_path, 2, print)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_later_days_bring_new_kinds_of_rows(tmp_path: Path) -> None:
    made = Rehearsal(tmp_path / "new", 2, print)
    for name in made.names:
        (made.folder / f"{name}-tables").mkdir()
    made.new_rows(1)
    made.new_rows(2)
    files = sorted(path.name for path in (made.folder / "site-1-tables").iterdir())
    assert files == ["day-1.csv", "day-2.csv"]


# in `make test`, examples/federation_on_loopback.py does the same without the command
@pytest.mark.soak
@pytest.mark.slow
def test_from_nothing_to_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "rehearsal"
    assert run(["federation", "rehearse", "--sites", "2", "--rounds", "1", "--out", str(folder), "--no-console"]) == 0
    said = capsys.readouterr().out
    assert "2 sites are connected." in said
    assert "rounds closed: 1" in said
    assert (folder / "study" / "state" / "report.html").stat().st_size > 10_000
