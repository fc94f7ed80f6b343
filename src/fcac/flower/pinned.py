"""The site's app, pinned: whatever a run was submitted with, a site runs the ``ClientApp`` of its own installation.

Flower sends an app with every run, and whoever may submit a run could so execute code at every site. ``fcac federation
site`` therefore puts a ``flwr-clientapp`` of its own before Flower's on the search path. It takes messages as Flower
does, but unpacks and loads nothing that was sent; the only code that can answer is :mod:`fcac.flower.client_app`.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

# Programs that a SuperNode could be made to start for other kinds of tasks; a site has no use for them.
_REFUSED = ("flwr-serverapp", "flwr-agentapp", "flwr-connector", "flwr-model", "flwr-simulation")


def write_programs(folder: Path) -> Path:
    """Write the pinned ``flwr-clientapp``, and refusals of everything else, into a folder for the search path."""
    folder.mkdir(parents=True, exist_ok=True)
    run = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m fcac.flower.pinned "$@"\n'
    for name, text in {"flwr-clientapp": run, **dict.fromkeys(_REFUSED, "#!/bin/sh\nexit 1\n")}.items():
        path = folder / name
        path.write_text(text, "utf-8")
        path.chmod(0o700)
    return folder


def main() -> None:
    """Run Flower's client process with loading and unpacking of what was sent taken out."""
    from flwr.supernode.cli import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp as runtime

    replaced = {
        "get_load_client_app_fn": _always_own_app,
        "install_from_fab": _install_nothing,
        "get_project_dir": _no_project,
        "install_app_dependencies": _refuse_dependencies,
    }
    for name, function in replaced.items():
        if not callable(getattr(runtime, name, None)):
            # Rather no answer than one from code that came over the network.
            raise RuntimeError(f"this version of flwr has no {name}: install the one that fcac[flower] asks for")
        setattr(runtime, name, function)
    flwr_clientapp()


def _always_own_app(**ignored: Any) -> Any:
    from fcac.flower.client_app import app

    return lambda fab_id, fab_version, fab_hash: app


def _install_nothing(*ignored: Any, **also_ignored: Any) -> None:
    return None


def _no_project(*ignored: Any) -> Path:
    return Path(os.devnull)


def _refuse_dependencies(*ignored: Any, **also_ignored: Any) -> Path:
    raise RuntimeError("a site installs nothing for a run")


if __name__ == "__main__":
    main()
