"""What the console's buttons do: start the command that a person would have typed."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from fcac._text import plain
from fcac.deployment import hub_audit, study
from fcac.deployment.settings import STATE, FederationSettings

_LOG = "console-run.log"
_MOST_ROUNDS = 100


class Actions:
    """Starts and stops rounds, and revokes sites; every action goes to the hub's audit log first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether rounds that were started here are still being played."""
        return self._running is not None and self._running.poll() is None

    @property
    def said(self) -> list[str]:
        """The last lines that the latest run has printed."""
        path = self._root / STATE / _LOG
        lines = path.read_bytes()[-4000:].decode("utf-8", "replace").splitlines() if path.exists() else []
        return [plain(line, 200) for line in lines[-8:]]

    def start(self, rounds: int) -> None:
        """Play rounds, as ``fcac federation run`` does."""
        if not 1 <= rounds <= _MOST_ROUNDS:
            raise ValueError(f"rounds must be from 1 to {_MOST_ROUNDS}")
        with self._lock:
            if self.running:
                raise ValueError("rounds are being played already")
            hub_audit.record(self._root, "console: run", rounds=rounds)
            command = [sys.executable, "-m", "fcac", "federation", "run", str(self._root), "--rounds", str(rounds)]
            with (self._root / STATE / _LOG).open("wb") as log:
                self._running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        """Stop the rounds that were started here; what has arrived is kept."""
        with self._lock:
            if not self.running or self._running is None:
                raise ValueError("no rounds are being played from here")
            hub_audit.record(self._root, "console: stop")
            self._running.terminate()

    def revoke(self, site: str) -> None:
        """Revoke a site's key, as ``fcac federation revoke`` does."""
        if site not in FederationSettings.load(self._root).members:
            raise ValueError("there is no such site in this federation")
        hub_audit.record(self._root, "console: revoke", site=site)
        study.revoke(self._root, site)

    def close(self) -> None:
        """End what was started here."""
        if self.running and self._running is not None:
            self._running.terminate()
            self._running.wait(60)
