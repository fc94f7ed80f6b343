"""``fcac audit``: attack the shipped mechanisms."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from fcac.cli import options as opt
from fcac.cli.console import BadUse, Progress, note, say


def audit(
    epsilon: Annotated[float, typer.Option("--epsilon", help="The guarantee to test.", show_default=False)],
    mechanism: Annotated[
        str, typer.Option("--mechanism", help="release (what --epsilon of fit uses), local, or paper.")
    ] = "release",
    delta: Annotated[float, typer.Option("--delta", help="For release.")] = 1e-6,
    runs: Annotated[int, typer.Option("--runs", help="Test runs per side and pair of data sets.", min=100)] = 10_000,
    as_json: opt.AsJson = False,
) -> None:
    """Attack the shipped code: try to distinguish neighbouring data sets better than the guarantee allows.

    The exit code is 1 if the guarantee is broken.

    [bold]Examples[/bold]

    fcac audit --epsilon 8

    fcac audit --epsilon 15 --mechanism paper --runs 1000   [dim]fails, as it should[/dim]
    """
    if not 0 < epsilon < float("inf"):
        raise BadUse(f"--epsilon must be a positive number, not {epsilon}")
    if mechanism not in ("release", "local", "paper"):
        raise BadUse(f"--mechanism must be release, local or paper, not {mechanism}")
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
            n_runs=runs,
            progress=lambda done, in_all: progress(done, done / in_all),
            also=sent_differences,
        )
    if as_json:
        say(json.dumps(result.to_dict(), indent=2))
    else:
        _show_audit(result)
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
