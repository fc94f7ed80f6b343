"""``fcac federation``: run a server, sites on their own machines, and rounds between them."""

from __future__ import annotations

from importlib import import_module

import typer

from fcac.cli.terminal import help_text

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run sites and a server on different machines.",
)

# In the order of the help text: the commands in each file of this package.
_COMMANDS = {
    "init": ("init",),
    "server": ("server",),
    "site": ("site",),
    "agree": ("agree",),
    "run": ("run",),
    "status": ("status",),
    "console": ("console",),
    "label": ("label",),
    "members": ("add", "forget", "revoke", "renew", "rotate"),
    "join": ("invite", "join", "accept", "sites"),
    "audit": ("log",),
    "upkeep": ("doctor", "audit", "backup", "restore", "address"),
    "rehearse": ("rehearse",),
    "flower": ("flower",),
}

for _file, _names in _COMMANDS.items():
    _module = import_module(f"{__name__}.{_file}")
    for _name in _names:
        _command = getattr(_module, _name)
        app.command(help=help_text(_command))(_command)
