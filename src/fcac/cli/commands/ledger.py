"""``fcac ledger``: show what has been spent of a privacy budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fcac.cli import options as opt
from fcac.cli.console import BadUse, say

if TYPE_CHECKING:
    pass


def ledger(
    path: Annotated[Path, typer.Argument(help="A ledger file.", metavar="PATH", show_default=False)],
    site: Annotated[str | None, typer.Option("--site", help="Only this site.", show_default=False)] = None,
    set_budget: Annotated[
        float | None,
        typer.Option(
            "--set-budget", help="Change the budget; the change is recorded in the ledger.", show_default=False
        ),
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Show what a site has spent of its privacy budget: when, on what, and what is left.

    [bold]Examples[/bold]

    fcac ledger site.db

    fcac ledger site.db --set-budget 8
    """
    from fcac.privacy import Ledger

    if not path.is_file():
        raise BadUse(f"there is no ledger {path}")
    book = Ledger.open(path)
    if set_budget is not None:
        if not 0 < set_budget < float("inf"):
            raise BadUse(f"--set-budget must be a positive number, not {set_budget}")
        book = book.change_budget(set_budget)
    sites = book.sites()
    if site is not None:
        if site not in sites:
            raise BadUse(f"no site {site} in {path}; its sites are {', '.join(sites) or 'none'}")
        sites = [site]
    entries = book.entries(site)
    if as_json:
        facts = {
            "path": str(path),
            "budget": book.budget,
            "delta": book.delta,
            "sites": [{"site": name, "spent": book.spent(name), "remaining": book.remaining(name)} for name in sites],
            "entries": entries,
        }
        say(json.dumps(facts, indent=2))
        return
    _show_entries(entries)
    for name in sites:
        left = book.remaining(name)
        say(
            f"{book.summary_line(name)}; "
            + (f"one more release may cost {left:.2f}" if left >= 0.005 else "nothing left")
        )
    if not sites:
        say(f"nothing spent yet; budget {book.budget:g} at delta = {book.delta:g}")


def _show_entries(entries: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not entries:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, side in (("#", "right"), ("time (UTC)", "left"), ("site", "left"), ("round", "right"), ("eps", "right")):
        table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("what", overflow="fold")
    table.add_column("adds up", overflow="fold")
    counted = {"all": "with everything", "ids": "per record id", "partition": "within its part"}
    for entry in entries:
        is_change = entry["rho"] == 0
        what = entry["what"] + ("" if entry["completed"] else " (not sent: interrupted)")
        part = f" ({entry['partition']})" if entry.get("partition") else ""
        table.add_row(
            str(entry["number"]),
            entry["time"].replace("T", " ").removesuffix("+00:00"),
            entry["site"],
            "" if entry["round"] is None else str(entry["round"]),
            "" if is_change else f"{entry['epsilon']:.2f}",
            what,
            "" if is_change else counted[entry["counted"]] + part,
        )
    Console(highlight=False, soft_wrap=False).print(table)
