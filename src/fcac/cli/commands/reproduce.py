"""`fcac reproduce`: the paper's figures and tables, and ours, from one command each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Run the paper's experiments again and say, figure by figure, whether they agree.",
)

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Directory with NAME.npz (X, y); without it the sets come from OpenML."),
]
Datasets = Annotated[str | None, typer.Option("--datasets", help="Comma-separated names; all ten by default.")]
Trials = Annotated[int, typer.Option("--trials", min=1, max=20, help="Trials per cell; the paper has 20.")]
Out = Annotated[Path, typer.Option("--out", help="Where results go; a stopped run goes on from there.")]
Jobs = Annotated[int | None, typer.Option("--jobs", help="Processes; by default one per processor.")]
Quick = Annotated[bool, typer.Option("--quick", help="Three small sets, three trials: under a minute.")]
OnlyWrite = Annotated[
    bool, typer.Option("--only-write", help="Run nothing: write tables from the trials that are there.")
]
Methods = Annotated[str | None, typer.Option("--methods", help="Comma-separated; all by default.")]


@app.command()
def figures(
    out: Out = Path("out/figures"), seed: Annotated[int, typer.Option(help="Seed of the synthetic data.")] = 0
) -> None:
    """Draw the paper's pictures, as PDF and PNG.

    Example: fcac reproduce figures --out out/figures
    """
    from fcac.paper.figures import reproduce_figures

    out.mkdir(parents=True, exist_ok=True)
    result = reproduce_figures(out, seed=seed)
    typer.echo(f"{len(list(out.glob('*.pdf')))} figures in {out}; figures.json holds their {len(result)} tables")


@app.command()
def tables(
    data_dir: DataDir = None,
    datasets: Datasets = None,
    methods: Methods = None,
    trials: Trials = 20,
    out: Out = Path("out/tables"),
    jobs: Jobs = None,
    quick: Quick = False,
    only_write: OnlyWrite = False,
) -> None:
    """Re-run the paper's two tables (no noise): FCAC and its rivals, IID and non-IID, with rank tests.

    Examples:

      fcac reproduce tables --quick --data-dir data

      fcac reproduce tables --data-dir data --datasets optdigits,pendigits --trials 20
    """
    import numpy as np

    _run(out, data_dir, datasets, methods, trials, jobs, quick, (np.inf,), only_write)


@app.command()
def privacy(
    data_dir: DataDir = None,
    datasets: Datasets = None,
    methods: Methods = None,
    trials: Trials = 20,
    out: Out = Path("out/privacy"),
    jobs: Jobs = None,
    quick: Quick = False,
    only_write: OnlyWrite = False,
) -> None:
    """Re-run the evaluation under the paper's noise (eps = 15, 25, 50, 75), and attack that noise.

    Writes the eps grid's tables, the critical-difference groups, and the figures of three attacks.

    Example: fcac reproduce privacy --data-dir data --out out/privacy
    """
    import json

    from fcac.paper.attacks import attack_figures
    from fcac.paper.grid import EPSILONS
    from fcac.persistence import write_atomic

    _run(out, data_dir, datasets, methods, trials, jobs, quick, EPSILONS[1:], only_write)
    with _working("attacking the paper's noise"):
        attacks = attack_figures()
    write_atomic(out / "attacks.json", (json.dumps(attacks, indent=1) + "\n").encode())
    typer.echo(f"attack figures: {out / 'attacks.json'}")


@app.command()
def quality(
    data_dir: DataDir = None,
    datasets: Datasets = None,
    trials: Trials = 20,
    out: Out = Path("out/quality"),
    jobs: Jobs = None,
    quick: Quick = False,
    only_write: OnlyWrite = False,
) -> None:
    """Put the communities read-out beside the paper's server and the rivals, under the paper's protocol.

    Example: fcac reproduce quality --data-dir data --datasets optdigits --trials 3
    """
    import numpy as np

    from fcac.paper.grid import METHODS

    chosen = ",".join((*METHODS, "communities", "communities (k given)"))
    _run(out, data_dir, datasets, chosen, trials, jobs, quick, (np.inf, 15.0), only_write)


@app.command(name="all")
def everything(
    data_dir: DataDir = None,
    datasets: Datasets = None,
    trials: Trials = 20,
    out: Out = Path("out"),
    jobs: Jobs = None,
    quick: Quick = False,
) -> None:
    """Run all of the above.

    Example: fcac reproduce all --data-dir data --out out
    """
    figures(out / "figures")
    tables(data_dir, datasets, None, trials, out / "tables", jobs, quick)
    privacy(data_dir, datasets, None, trials, out / "privacy", jobs, quick)
    quality(data_dir, datasets, trials, out / "quality", jobs, quick)


def _run(
    out: Path,
    data_dir: Path | None,
    datasets: str | None,
    methods: str | None,
    trials: int,
    jobs: int | None,
    quick: bool,
    epsilons: tuple[float, ...],
    only_write: bool = False,
) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from fcac.paper.grid import METHODS, Cell, epsilon_name
    from fcac.paper.reproduce import QUICK_SETS, QUICK_TRIALS, reproduce_tables

    names = _split(datasets) or (list(QUICK_SETS) if quick else None)
    out.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("trials", total=None)

        def advance(done: int, total: int, cell: Cell) -> None:
            shown = f"{cell.dataset} {cell.scenario} eps={epsilon_name(cell.epsilon)} {cell.method}"
            bar.update(task, completed=done, total=total, description=shown)

        summary = reproduce_tables(
            out,
            datasets=names,
            methods=_split(methods) or METHODS,
            epsilons=epsilons,
            n_trials=min(trials, QUICK_TRIALS) if quick else trials,
            data_dir=None if data_dir is None else str(data_dir),
            n_jobs=jobs,
            progress=advance,
            only_write=only_write,
        )
    _show(summary, out)


def _show(summary: dict[str, Any], out: Path) -> None:
    for method, counts in summary["agreement"].items():
        typer.echo(
            f"{method}: {counts['equal_digits']} of {counts['compared']} figures equal the paper's to the digit, "
            f"{counts['beyond_2_standard_errors']} beyond two standard errors"
        )
    for name, by_metric in summary["comparisons"].items():
        if isinstance(by_metric, dict):
            ranks = by_metric["all"]["average_ranks"]
            typer.echo(f"{name}: " + ", ".join(f"{method} {rank:.3f}" for method, rank in ranks.items()))
    typer.echo(f"tables: {out / 'tables.md'}")


def _split(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _working(what: str) -> Any:
    from rich.console import Console

    return Console(stderr=True).status(what)
