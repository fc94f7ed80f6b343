"""``fcac ledger`` and ``audit``: what was spent of a privacy budget, and whether the mechanisms keep their promise."""

from __future__ import annotations

import json
import secrets
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fcac._text import counted
from fcac.cli import options as opt
from fcac.cli.terminal import BadUse, Progress, check_out, note, say

if TYPE_CHECKING:
    from fcac.privacy import Ledger
    from fcac.privacy.receipts import Left


def ledger(
    path: Annotated[Path, opt.argument("A ledger file.", "PATH")],
    site: Annotated[str | None, opt.option("Only this site.")] = None,
    set_budget: Annotated[float | None, opt.option("Change the budget; the change is recorded in the ledger.")] = None,
    statement: Annotated[
        Path | None,
        opt.option(
            "Write a privacy statement with this ledger's figures here: one HTML page to print.", metavar="FILE"
        ),
    ] = None,
    people: Annotated[
        int | None,
        opt.option("For --statement: how many people (or rows) the data are about; delta is held against it.", min=1),
    ] = None,
    people_overlap: Annotated[
        int | None,
        opt.option("For --statement: at how many sites one person may be, as the study assumes.", min=1),
    ] = None,
    recover: Annotated[
        Path | None,
        opt.option(
            "Charge what is missing here but has left, according to this model or state directory of a site; makes the "
            "ledger anew if it is gone.",
            metavar="FILE",
        ),
    ] = None,
    recover_round: Annotated[
        int | None,
        opt.option("Charge every round of --site up to this one that is missing here, at --epsilon.", min=1),
    ] = None,
    epsilon: Annotated[float | None, opt.option("For --recover-round.")] = None,
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

    opt.check_positive("set-budget", set_budget)
    found = None
    if recover is not None:
        if not recover.exists():
            raise BadUse(f"--recover {recover}: there is no such file or directory")
        found = what_left(recover, site)
    book = _opened(path, set_budget, found, anew=recover_round is not None)
    if set_budget is not None and book.budget != set_budget:
        book = book.change_budget(set_budget)
    if found is not None:
        _recover(book, found)
    if recover_round is not None:
        _recover_rounds(book, site, recover_round, epsilon)
    elif epsilon is not None:
        raise BadUse("--epsilon needs --recover-round")
    if statement is not None:
        from fcac.report.page import ledger_statement

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


def _opened(path: Path, budget: float | None, found: dict[str, Left] | None, anew: bool) -> Ledger:
    """Return the ledger; if it is lost and something is left of what it held, a new one in its place."""
    from fcac.privacy import Ledger

    if path.is_file():
        return Ledger.open(path)
    if found is None and not anew:
        raise BadUse(f"there is no ledger {path}")
    known = [left.budget for left in (found or {}).values() if left.budget is not None]
    if budget is None and not known:
        raise BadUse(f"{path} is lost, and nothing says what its budget was: give --set-budget EPSILON")
    return Ledger.anew(path, budget if budget is not None else max(known))


def _recover_rounds(book: Ledger, site: str | None, newest: int, epsilon: float | None) -> None:
    if site is None or epsilon is None or not 0 < epsilon < float("inf"):
        raise BadUse("--recover-round needs --site NAME and --epsilon E, the cost of a round")
    # a round of which the ledger has a part, because it was copied or broke off in its middle, is charged the rest
    added = book.recover(site, [], rounds=dict.fromkeys(range(1, newest + 1), book.rho_of(epsilon)))
    if not added:
        raise BadUse(f"rounds 1 to {newest} of site {site} are in the ledger already")
    say(f"Charged what was missing in {counted(added, 'round')} of site {site}, up to eps = {epsilon:g} each.")


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
    adds_up = {"all": "with everything", "ids": "per person"}
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


def audit(
    epsilon: Annotated[float, opt.option("The guarantee to test.")],
    mechanism: Annotated[str, opt.option("release (what --epsilon of fit uses), local, or paper.")] = "release",
    delta: Annotated[float, opt.option("For release.")] = 1e-6,
    aggregation: Annotated[
        str, opt.option("plain, or secure: attack what a hub with a colluding site sees.")
    ] = "plain",
    runs: Annotated[
        int | None,
        opt.option("Test runs per side and pair of data sets; 3,000, or 100 of secure aggregation.", min=100),
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Attack the shipped code: try to distinguish neighbouring data sets better than the guarantee allows.

    The exit code is 1 if the guarantee is broken.

    [bold]Examples[/bold]
    fcac audit --epsilon 8
    fcac audit --epsilon 15 --mechanism paper --runs 1000   [dim]fails, as it should[/dim]
    fcac audit --epsilon 4 --aggregation secure
    """
    opt.check_positive("epsilon", epsilon)
    opt.one_of("mechanism", mechanism, "release", "local", "paper")
    opt.one_of("aggregation", aggregation, "plain", "secure")
    if aggregation == "secure":
        if mechanism != "release":
            raise BadUse("--aggregation secure sums releases only: leave out --mechanism")
        _audit_aggregation(epsilon, delta, runs or 100, as_json)
        return
    from fcac.federation.sent_audit import sent_differences
    from fcac.privacy import LocalNoise, NodeRelease, PaperLaplace, PrivacyWarning
    from fcac.privacy import audit as run_audit

    bounds = [[0.0, 1.0], [0.0, 1.0]]
    tested: Any
    if mechanism == "release":
        tested = NodeRelease(epsilon, bounds, delta)
    else:
        tested = LocalNoise(epsilon, bounds) if mechanism == "local" else PaperLaplace(epsilon)
    with Progress("attacking", "runs") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # the verdict is clearer
        result = run_audit(
            tested,
            n_runs=runs or 3_000,
            progress=lambda done, in_all: progress(done, done / in_all),
            also=sent_differences,
        )
    if as_json:
        say(json.dumps(result.to_dict(), indent=2))
    else:
        _show_audit(result)
    if not result.holds:
        raise typer.Exit(1)


def _audit_aggregation(epsilon: float, delta: float, runs: int, as_json: bool) -> None:
    from fcac.aggregation.transcript_attacks import audit_aggregation
    from fcac.privacy import NodeRelease

    mechanism = NodeRelease(epsilon, [[0.0, 1.0], [0.0, 1.0]], delta)
    with Progress("attacking", "runs") as progress:
        result = audit_aggregation(mechanism, runs, progress=lambda done, in_all: progress(done, done / in_all))
    if as_json:
        say(json.dumps(result.to_dict(), indent=2))
    else:
        say(f"A hub with one colluder among four sites, {runs:,} rounds per side:")
        for attack in result.attacks:
            say(f"  {attack.name}: {'holds' if attack.holds else 'FAILS'}: {attack.verdict}")
        if result.holds:
            note("An audit can find a broken protocol; finding none is evidence, not proof. The proof is in the docs.")
    if not result.holds:
        raise typer.Exit(1)


def _show_audit(result: Any) -> None:
    if result.interference:
        say(result.verdict)
        return
    say(f"{result.n_runs:,} runs per side for each of {len(result.pairs)} pairs of neighbouring data sets.")
    for pair in result.pairs:
        shown = f"; {result.measure} at least {pair.mu_of_one:.2f}" if result.measure == "mu" else ""
        alarms = f"{pair.true_alarms:.1%} true and {pair.false_alarms:.1%} false alarms"
        say(f"  {pair.name}: distinguished with {alarms}{shown}")
    say(f"Promised {result.measure} = {result.promised:.3g}; lower bound found {result.found:.3g}.")
    say(result.verdict)
    if result.measure == "mu":
        from fcac.privacy.auditing import CANNOT_SEE, COVERS

        for title, lines in (("It covers", COVERS), ("It cannot see", CANNOT_SEE)):
            say(f"{title}:")
            for line in lines:
                say(f"  - {line}")
    if result.holds:
        note("An audit can find a broken guarantee; finding none is evidence, not proof. The proof is in the docs.")
