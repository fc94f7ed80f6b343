"""``fcac federation``: run a server, sites on their own machines, and rounds between them.

Every public function of a file here is a command, named like it.
"""

from __future__ import annotations

import sys

import typer

from fcac.cli.options import add_commands

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run sites and a server on different machines.",
)
_ORDER = (
    *("init", "server", "site", "agree", "run", "status", "console", "label", "add", "forget", "revoke", "renew"),
    *("rotate", "invite", "join", "accept", "sites", "log", "doctor", "audit", "backup", "restore", "address"),
    *("rehearse", "flower"),
)
add_commands(app, sys.modules[__name__], _ORDER)
