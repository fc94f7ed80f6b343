"""The folder that ``flwr run`` takes: a description of the app, with nothing in it that runs."""

from __future__ import annotations

import json
from pathlib import Path

from fcac import persistence
from fcac._version import __version__
from fcac.deployment.settings import FederationSettings

_TEXT = """\
# fcac as a Flower app; made by `fcac federation flower`. Start it with: flwr run {folder}
# Each SuperNode names its site: --node-config 'fcac-site="/path/to/state/settings.json"'

[project]
name = "fcac-app"
version = "{version}"
dependencies = []   # fcac is installed beside Flower, at the SuperLink and at every SuperNode

[tool.flwr.app]
publisher = "fcac"

[tool.flwr.app.components]
serverapp = "fcac.flower.server_app:app"
clientapp = "fcac.flower.client_app:app"

[tool.flwr.app.config]
fcac-federation = {root}
fcac-rounds = {rounds}
"""


def write_app(root: Path, folder: Path, rounds: int = 1) -> Path:
    """Write the folder, which must be empty or new, for the federation in `root`; return it."""
    FederationSettings.load(root)
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: the app needs a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    where = json.dumps(str(root.resolve()))
    text = _TEXT.format(folder=folder, version=__version__, root=where, rounds=rounds)
    persistence.write_atomic(folder / "pyproject.toml", text.encode())
    return folder
