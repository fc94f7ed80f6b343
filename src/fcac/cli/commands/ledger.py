"""``fcac ledger``: show what was spent of a privacy budget, state it for a privacy officer, repair an old copy."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fcac._text import counted
from fcac.cli import options as opt
from fcac.cli.terminal import BadUse, check_out, say

if TYPE_CHECKING:
    from fcac.privacy import Ledger
    from fcac.privacy.receipts import Left


def ledger(
    path: Annotated[Path, typer.Argument(help="A ledger file.", metavar="PATH", show_default=False)],
    site: Annotated[str | None, typer.Option("--site", help="Only this site.", show_default=False)] = None,
    set_budget: Annotated[
        float | None,
        typer.Option(
            "--set-budget", help="Change the budget; the change is recorded in the ledger.", show_default=False
        ),
    ] = None,
    statement: Annotated[
        Path | None,
        typer.Option(
            "--statement",
            help="Write a privacy statement with this ledger's figures here: one HTML page to print.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    people: Annotated[
        int | None,
        typer.Option(
            "--people",
            help="For --statement: how many people (or rows) the data are about; delta is held against it.",
            min=1,
            show_default=False,
        ),
    ] = None,
    people_overlap: Annotated[
        int | None,
        typer.Option(
            "--people-overlap",
            help="For --statement: at how many sites one person may be, as the study assumes.",
            min=1,
            show_default=False,
        ),
    ] = None,
    recover: Annotated[
        Path | None,
        typer.Option(
            "--recover",
            help="Charge what is missing here but has left, according to this model or state directory of a site; "
            "makes the ledger anew if it is gone.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    recover_round: Annotated[
        int | None,
        typer.Option(
            "--recover-round",
            help="Charge every round of --site up to this one that is missing here, at --epsilon.",
            min=1,
            show_default=False,
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="For --recover-round.", show_default=False)] = None,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Show what has been spent of a privacy budget: when, on what, and what is left.

    A ledger belongs to one owner of data: all releases count together, under whatever site name they were made.

    [bold]Examples[/bold]

    fcac ledger site.db

    fcac ledger site.db --statement statement.html

    fcac ledger site.db --set-budget 8
    """
    from fcac.privacy.receipts import what_left

    if set_budget is not None and not 0 < set_budget < float("inf"):
        raise BadUse(f"--set-budget must be a positive number, not {set_budget}")
    found = None
    if recover is not None:
        if not recover.exists():
            raise BadUse(f"--recover {recover}: there is no such file or directory")
        found = what_left(recover, site)
    book = _opened(path, set_budget, found)
    if set_budget is not None and book.budget != set_budget:
        book = book.change_budget(set_budget)
    if found is not None:
        _recover(book, found)
    if recover_round is not None:
        _recover_rounds(book, site, recover_round, epsilon)
    elif epsilon is not None:
        raise BadUse("--epsilon needs --recover-round")
    if statement is not None:
        from fcac.report.ledger_statement import ledger_statement

        check_out(statement, force)
        statement.write_text(ledger_statement(book, people, people_overlap), encoding="utf-8")
        say(f"Statement: {statement} (open it in a browser and print it; it fits one sheet)")
        return
    if people is not None or people_overlap is not None:
        raise BadUse("--people and --people-overlap need --statement")
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
            "unit": book.unit(),
            "spent": book.spent(),
            "remaining": book.remaining(),
            "sites": [{"site": name, "spent": book.spent(name), "remaining": book.remaining(name)} for name in sites],
            "people": book.people(),
            "entries": entries,
        }
        say(json.dumps(facts, indent=2))
        return
    _show_entries(entries)
    _show_totals(book, sites)


def _show_totals(book: Ledger, sites: list[str]) -> None:
    if not sites:
        say(f"nothing spent yet; budget {book.budget:g} at delta = {book.delta:g}")
        return
    left = book.remaining()
    rest = f"one more release may cost {left:.2f}" if left >= 0.005 else "nothing left"
    if book.unit() == "person":
        rest += " for everybody; people who have spent more are left out"
    for name in sites:
        say(book.summary_line(name) + (f"; {rest}" if len(sites) == 1 else ""))
    if len(sites) > 1:
        say(f"{book.summary_line()}; {rest}")
    costs = book.people()
    if costs:
        used_up = sum(cost > 0.995 * book.budget for cost in costs)
        people = counted(len(costs), "person", "people")
        say(f"{people}: the highest cost is {costs[0]:.2f}; {used_up:,} with the budget used up")


def _recover(book: Ledger, found: dict[str, Left]) -> None:
    from fcac.privacy.account import Receipt
    from fcac.privacy.zcdp import rho_from_epsilon

    added = 0
    for name, left in found.items():
        rounds = {number: sum(map(book.rho_of, costs)) for number, costs in left.rounds.items()}
        added += book.recover(name, list(left.receipts.values()), left.rho, rounds)
    most = max((left.spent for left in found.values()), default=0.0)
    if most > book.spent_at_most() + 1e-6:
        # what was said counts, even if nothing tells what it was spent on
        missing = rho_from_epsilon(most, book.delta) - rho_from_epsilon(book.spent_at_most(), book.delta)
        added += book.recover("", [Receipt(secrets.token_hex(8), missing, 0)])
    say(f"Charged {counted(added, 'release')} that had left and were missing here." if added else "Nothing is missing.")


def _opened(path: Path, budget: float | None, found: dict[str, Left] | None) -> Ledger:
    """Return the ledger; if it is lost and something is left of what it held, a new one in its place."""
    from fcac.privacy import Ledger

    if path.is_file():
        return Ledger.open(path)
    if found is None:
        raise BadUse(f"there is no ledger {path}")
    known = [left.budget for left in found.values() if left.budget is not None]
    if budget is None and not known:
        raise BadUse(f"{path} is lost, and nothing says what its budget was: give --set-budget EPSILON")
    return Ledger.anew(path, budget if budget is not None else max(known))


def _recover_rounds(book: Ledger, site: str | None, newest: int, epsilon: float | None) -> None:
    if site is None or epsilon is None or not 0 < epsilon < float("inf"):
        raise BadUse("--recover-round needs --site NAME and --epsilon E, the cost of a round")
    missing = [number for number in range(1, newest + 1) if not book.knows_round(site, number)]
    if not missing:
        raise BadUse(f"rounds 1 to {newest} of site {site} are in the ledger already")
    book.recover(site, [], rounds=dict.fromkeys(missing, book.rho_of(epsilon)))
    rounds = ", ".join(map(str, missing))
    say(f"Charged {'round' if len(missing) == 1 else 'rounds'} {rounds} of site {site} at eps = {epsilon:g} each.")


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
    adds_up = {
        "all": "with everything",
        "ids": "per person",
    }
    for entry in entries:
        is_change = entry["rho"] == 0
        what = entry["what"] + ("" if entry["completed"] else " (not sent: interrupted)")
        table.add_row(
            str(entry["number"]),
            entry["time"].replace("T", " ").removesuffix("+00:00"),
            entry["site"],
            "" if entry["round"] is None else str(entry["round"]),
            "" if is_change else f"{entry['epsilon']:.2f}",
            what,
            "" if is_change else adds_up[entry["counted"]],
        )
    Console(highlight=False, soft_wrap=False).print(table)
