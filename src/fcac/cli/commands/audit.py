"""``fcac audit``: attack the shipped mechanisms."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from fcac.cli import options as opt
from fcac.cli.terminal import BadUse, Progress, note, say

# Runs per side against each planted fault, which are easier to find than nothing is to rule out.
_FAULT_RUNS = 30


def audit(
    epsilon: Annotated[float, typer.Option("--epsilon", help="The guarantee to test.", show_default=False)],
    mechanism: Annotated[
        str, typer.Option("--mechanism", help="release (what --epsilon of fit uses), local, or paper.")
    ] = "release",
    delta: Annotated[float, typer.Option("--delta", help="For release.")] = 1e-6,
    aggregation: Annotated[
        str, typer.Option("--aggregation", help="plain, or secure: attack what a hub with a colluding site sees.")
    ] = "plain",
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            help="Test runs per side and pair of data sets; 4,000, or 100 of secure aggregation.",
            min=100,
            show_default=False,
        ),
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
    if not 0 < epsilon < float("inf"):
        raise BadUse(f"--epsilon must be a positive number, not {epsilon}")
    if mechanism not in ("release", "local", "paper"):
        raise BadUse(f"--mechanism must be release, local or paper, not {mechanism}")
    if aggregation not in ("plain", "secure"):
        raise BadUse(f"--aggregation must be plain or secure, not {aggregation}")
    if aggregation == "secure":
        if mechanism != "release":
            raise BadUse("--aggregation secure sums releases only: leave out --mechanism")
        _audit_aggregation(epsilon, delta, runs or 100, as_json)
        return
    import warnings

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
            n_runs=runs or 4_000,
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
    """Attack the protocol as shipped, then with planted faults, to show that each attack finds what it looks for."""
    from fcac.aggregation.transcript_attacks import FAULTS, AggregationAudit, Fault, audit_aggregation
    from fcac.privacy import NodeRelease

    mechanism = NodeRelease(epsilon, [[0.0, 1.0], [0.0, 1.0]], delta)
    found: dict[str, list[str]] = {}
    # every side of every pair is played twice, once to choose the test
    in_all = 4 * (runs + _FAULT_RUNS * len(FAULTS))
    with Progress("attacking", "runs") as progress:

        def attack_with(fault: Fault | None, n_runs: int, before: int) -> AggregationAudit:
            return audit_aggregation(
                mechanism, n_runs, fault, lambda done, _: progress(before + done, (before + done) / in_all)
            )

        result = attack_with(None, runs, 0)
        for place, (name, fault) in enumerate(FAULTS.items()):
            planted = attack_with(fault, _FAULT_RUNS, 4 * (runs + _FAULT_RUNS * place))
            found[name] = [attack.name for attack in planted.attacks if not attack.holds]
    missed = [name for name, attacks in found.items() if not attacks]
    if as_json:
        say(json.dumps({**result.to_dict(), "planted": found}, indent=2))
    else:
        say(f"A hub with one colluder among four sites, {runs:,} rounds per side:")
        for attack in result.attacks:
            say(f"  {attack.name}: {'holds' if attack.holds else 'FAILS'}: {attack.verdict}")
        say("The same attacks on planted faults:")
        for name, attacks in found.items():
            say(f"  {name}: " + (f"found ({', '.join(attacks)})" if attacks else "NOT FOUND"))
        if result.holds:
            note("An audit can find a broken protocol; finding none is evidence, not proof. The proof is in the docs.")
    if not result.holds or missed:
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
