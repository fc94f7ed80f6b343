"""The command line: ``fcac`` and its commands.

Commands import what they need when they run, so that ``fcac --help`` is fast and works whatever is installed.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, get_type_hints

import click
import typer
from typer.core import TyperGroup

from fcac.cli import commands, terminal
from fcac.cli.options import add_commands

__all__ = ["app", "main", "run"]

# The order of the help text; a command that is not named here comes after these.
_ORDER = (
    *("demo", "fit", "update", "calibrate", "predict", "report", "inspect", "export", "forget"),
    *("schema", "ledger", "audit"),
)
# Groups of commands that are loaded only when one of them is called: name -> (module, line in the list of commands).
_LAZY = {
    "reproduce": (
        "fcac.cli.reproduce",
        "Re-run the paper's evaluation and compare the results, cell by cell.",
    ),
    "federation": ("fcac.cli.federation", "Run sites and a server on different machines."),
}


def with_argument_help(command: click.Command) -> click.Command:
    """Restore the help texts of arguments, which typer loses with some versions of click."""
    for child in getattr(command, "commands", {}).values():
        with_argument_help(child)
    if command.callback is None:
        return command
    hints = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and not getattr(parameter, "help", None):
            for about in getattr(hints.get(parameter.name or ""), "__metadata__", ()):
                parameter.help = getattr(about, "help", None)
    return command


class _RootGroup(TyperGroup):
    """The root command, which loads the lazy groups when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *_LAZY]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _LAZY:
            return TyperGroup(name=cmd_name, help=_LAZY[cmd_name][1], short_help=_LAZY[cmd_name][1])
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name in _LAZY:
            module = import_module(_LAZY[name][0])
            command = with_argument_help(typer.main.get_group(module.app))
            command.name = name
            return name, command, args[1:]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_RootGroup,
    name="fcac",
    invoke_without_command=True,
    suggest_commands=False,  # click makes its own suggestions
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from fcac._version import __version__

        terminal.say(f"fcac {__version__}")
        raise typer.Exit


def root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find which rows of a table belong together, without saying how many groups there are.

    The rows may be at several sites that do not hand them over: each condenses its own to a few nodes, and a server
    finds clusters in the nodes of all. What was learned can be added to.

    Start with [bold]fcac demo[/bold], or with your own tables:

    [bold]fcac fit data/*.csv --out model.fcac --report report.html[/bold]
    """
    if ctx.invoked_subcommand is None:
        terminal.say(ctx.get_help())


app.callback(help=terminal.help_text(root))(root)
_COMMANDS = add_commands(app, commands, _ORDER)


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are reported in one line on standard error.

    0 is success, 1 failure, 2 wrong usage, 130 interrupted.
    """
    command = with_argument_help(typer.main.get_command(app))
    name = f"fcac {args[0]}" if args and not args[0].startswith("-") else "fcac"
    try:
        with terminal.plain_warnings():
            result: Any = command.main(list(args), prog_name="fcac", standalone_mode=False)
            sys.stdout.flush()
    except BrokenPipeError:
        # the reader has closed the pipe; buffered output is discarded
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        return terminal.explain(error, name)
    if result == 130:  # typer turns an interrupt into this code
        return terminal.explain(KeyboardInterrupt(), name)
    return result if isinstance(result, int) else 0


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
