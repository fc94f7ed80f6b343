"""`fcac reproduce`: the paper's figures and tables, and comparisons with the field, each from one command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="""Run the paper's experiments again, and compare fcac with its field; each page of results from one command.

    Every command has --quick (a minute or two), resumes where it was stopped, and reads what it runs from a file in
    fcac/paper/configs. Clusterers of other packages come with the extra "peers".

    Examples:

      fcac reproduce tables --quick --data-dir data

      fcac reproduce one-table --quick

      fcac reproduce continual --quick

      fcac reproduce private --quick

      fcac reproduce networks --quick --data-dir data
    """,
)

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Directory with a NAME.npz (X, y) for each set; by default they come from OpenML."),
]
Datasets = Annotated[str | None, typer.Option("--datasets", help="Comma-separated names of sets; all ten by default.")]
Trials = Annotated[
    int | None, typer.Option("--trials", min=1, max=20, help="Trials per cell; by default 20, as in the paper.")
]
Out = Annotated[Path, typer.Option("--out", help="Directory for the results; a stopped run continues from there.")]
Jobs = Annotated[int | None, typer.Option("--jobs", help="Number of processes; one per core by default.")]
Quick = Annotated[bool, typer.Option("--quick", help="Three small data sets, at most three trials: a minute or two.")]
OnlyWrite = Annotated[
    bool, typer.Option("--only-write", help="Run no trials; write the tables from those already finished.")
]
Methods = Annotated[str | None, typer.Option("--methods", help="Comma-separated names of methods; all by default.")]


Sets = Annotated[str | None, typer.Option("--sets", help="Names of sets, separated by semicolons; all by default.")]
SomeMethods = Annotated[
    str | None,
    typer.Option("--methods", help="Names of methods, separated by semicolons (or commas, if no name has one)."),
]
FewTrials = Annotated[int | None, typer.Option("--trials", min=1, help="Trials per set and method; as published.")]
QuickComparison = Annotated[bool, typer.Option("--quick", help="Few sets, one trial: a minute or two.")]


@app.command()
def figures(
    out: Out = Path("out/figures"),
    seed: Annotated[int, typer.Option(help="Seed of data and noise.")] = 0,
) -> None:
    """Draw the paper's figures as PDF and PNG.

    Example: fcac reproduce figures --out out/figures
    """
    from fcac.paper import check_extra

    check_extra()
    from fcac.paper.figures import reproduce_figures

    result = reproduce_figures(out, seed=seed)
    drawn = [name for name in result["files"] if name.endswith(".pdf")]
    typer.echo(f"{len(drawn)} figures in {out}; figures.json and figures.md hold their numbers")


def _grid(name: str, words: str) -> Callable[..., None]:
    """Make the command that runs one of the grids of trials under the paper's protocol."""

    def command(
        data_dir: DataDir = None,
        datasets: Datasets = None,
        methods: Methods = None,
        trials: Trials = None,
        out: Out = Path("out") / name,
        jobs: Jobs = None,
        quick: Quick = False,
        only_write: OnlyWrite = False,
    ) -> None:
        _run(name, out, data_dir, datasets, methods, trials, jobs, quick, only_write)
        if name == "privacy":
            _attack(out)

    command.__doc__ = words
    app.command(name=name)(command)
    return command


tables = _grid(
    "tables",
    """Compute the paper's two tables again (no noise): FCAC and its rivals, IID and non-IID, with rank tests.

    Examples:

      fcac reproduce tables --quick --data-dir data

      fcac reproduce tables --data-dir data --datasets optdigits,pendigits --trials 20
    """,
)
privacy = _grid(
    "privacy",
    """Repeat the evaluation under the paper's noise (eps = 15, 25, 50, 75), and attack that noise.

    Writes one table per eps, the critical-difference diagrams, and the outcome of five attacks.

    Example: fcac reproduce privacy --data-dir data --out out/privacy
    """,
)
quality = _grid(
    "quality",
    """Compare the communities server with the paper's, the rivals and a federated mixture, under the paper's protocol.

    Example: fcac reproduce quality --data-dir data --datasets optdigits --trials 3
    """,
)
networks = _grid(
    "networks",
    """Ask which clusterer inside is best: GNG, GWR, ASOINN and SOINN+ at sites and server, beside FCAC's own.

    Example: fcac reproduce networks --quick --data-dir data
    """,
)


def _attack(out: Path) -> None:
    """Attack the paper's noise, and write what came of it."""
    import json

    from fcac.paper.attacks import attack_figures
    from fcac.persistence import write_atomic

    with _working("attacking the paper's noise"):
        attacks = attack_figures()
    write_atomic(out / "attacks.json", (json.dumps(attacks, indent=1) + "\n").encode())
    typer.echo(f"outcome of the attacks: {out / 'attacks.json'}")


@app.command(name="one-table")
def one_table(
    data_dir: DataDir = None,
    sets: Sets = None,
    methods: SomeMethods = None,
    trials: FewTrials = None,
    out: Out = Path("out/one-table"),
    quick: QuickComparison = False,
    only_write: OnlyWrite = False,
) -> None:
    """Cluster one table with fcac and its peers: HDBSCAN, PLSCAN, Leiden, Genie, k-means and others; with rank tests.

    Sets beyond those that are made on the spot come from NAME.npz files in --data-dir.

    Examples:

      fcac reproduce one-table --quick

      fcac reproduce one-table --sets "two moons;iris" --methods fcac,HDBSCAN,GNG
    """
    from fcac.paper import one_table as comparison

    _compare("one-table", comparison.trial, data_dir, sets, methods, trials, out, quick, only_write=only_write)


@app.command()
def private(
    data_dir: DataDir = None,
    sets: Sets = None,
    epsilons: Annotated[
        str | None, typer.Option("--epsilons", help="Comma-separated; as published by default.")
    ] = None,
    methods: SomeMethods = None,
    trials: FewTrials = None,
    diffprivlib: Annotated[
        Path | None,
        typer.Option("--diffprivlib", help="Python of an environment with diffprivlib; by default this one."),
    ] = None,
    out: Out = Path("out/private"),
    quick: QuickComparison = False,
    only_write: OnlyWrite = False,
) -> None:
    """Compare private clusterings at equal epsilon: releases, noise on rows, private k-means; with a picture.

    A set of your own is a file NAME.npz in --data-dir with X, y and bounds (d, 2), and n_sites if it is not ten.

    Examples:

      fcac reproduce private --quick

      fcac reproduce private --diffprivlib venv-diffprivlib/bin/python

      fcac reproduce private --data-dir data --sets "digits;mine" --epsilons 1,4
    """
    import sys
    from dataclasses import replace

    from fcac.paper import private as comparison
    from fcac.paper.config import Config

    python = str(diffprivlib or sys.executable)

    def at_each_epsilon(config: Config) -> Config:
        chosen = [float(text) for text in _split(epsilons)] or config.epsilons
        return replace(config, sets=tuple(comparison.name_at(name, e) for name in config.sets for e in chosen))

    results = _compare(
        "private",
        comparison.trial_with(python),
        data_dir,
        sets,
        methods,
        trials,
        out,
        quick,
        left_out=lambda names: comparison.left_out(names, python),
        prepare=at_each_epsilon,
        pictures=("epsilon.png",),
        only_write=only_write,
    )
    comparison.draw(results, out / "epsilon.png")
    typer.echo(f"picture: {out / 'epsilon.png'}")


@app.command()
def continual(
    data_dir: DataDir = None,
    sets: Sets = None,
    methods: SomeMethods = None,
    trials: FewTrials = None,
    out: Out = Path("out/continual"),
    quick: QuickComparison = False,
    only_write: OnlyWrite = False,
) -> None:
    """Measure forgetting: class after class and drifting streams, with a picture.

    Example: fcac reproduce continual --quick
    """
    from fcac.paper import continual as comparison
    from fcac.paper.runs import stored_trials

    results = _compare(
        "continual",
        comparison.trial,
        data_dir,
        sets,
        methods,
        trials,
        out,
        quick,
        pictures=("forgetting.png",),
        only_write=only_write,
    )
    comparison.draw(results, lambda name, method: stored_trials(out, name, method), out / "forgetting.png")
    typer.echo(f"picture: {out / 'forgetting.png'}")


@app.command(name="all")
def everything(
    data_dir: DataDir = None,
    datasets: Datasets = None,
    trials: Trials = None,
    out: Out = Path("out"),
    jobs: Jobs = None,
    quick: Quick = False,
) -> None:
    """Run figures, tables, privacy, quality and the comparisons, one after the other.

    Example: fcac reproduce all --data-dir data --out out
    """
    figures(out / "figures")
    for name, play in (("tables", tables), ("privacy", privacy), ("quality", quality), ("networks", networks)):
        play(data_dir, datasets, None, trials, out / name, jobs, quick)
    one_table(out=out / "one-table", quick=quick)
    continual(out=out / "continual", quick=quick)
    private(out=out / "private", quick=quick)


def _run(
    name: str,
    out: Path,
    data_dir: Path | None,
    datasets: str | None,
    methods: str | None,
    trials: int | None,
    jobs: int | None,
    quick: bool,
    only_write: bool = False,
) -> None:
    from fcac.paper import check_extra

    check_extra()
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from fcac.paper.config import read_grid
    from fcac.paper.grid import Cell, epsilon_name
    from fcac.paper.grid_results import reproduce_tables

    config = read_grid(name, quick=quick)
    out.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("trials", total=None)

        def advance(done: int, total: int, cell: Cell) -> None:
            shown = f"{cell.dataset} {cell.scenario} eps={epsilon_name(cell.epsilon)} {cell.method}"
            bar.update(task, completed=done, total=total, description=shown)

        summary = reproduce_tables(
            out,
            datasets=_split(datasets) or config.sets,
            methods=_split(methods) or config.methods,
            epsilons=config.epsilons,
            n_trials=config.trials if trials is None else min(trials, config.trials),
            data_dir=None if data_dir is None else str(data_dir),
            n_jobs=jobs,
            progress=advance,
            only_write=only_write,
            title=config.title,
        )
    _show(summary, out)


def _compare(
    name: str,
    trial: Any,
    data_dir: Path | None,
    sets: str | None,
    methods: str | None,
    trials: int | None,
    out: Path,
    quick: bool,
    left_out: Callable[[tuple[str, ...]], dict[str, str]] | None = None,
    prepare: Callable[[Any], Any] | None = None,
    pictures: tuple[str, ...] = (),
    only_write: bool = False,
) -> dict[str, Any]:
    from fcac.paper import check_extra

    check_extra()
    import shlex
    import sys

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from fcac.paper.config import read_config, with_files
    from fcac.paper.peers import missing
    from fcac.paper.runs import run

    config = with_files(read_config(name, quick=quick), data_dir)
    config = config.narrowed(_split(sets, ";"), _chosen_methods(methods, config.methods), trials)
    config = prepare(config) if prepare is not None else config
    absent = (left_out or missing)(config.methods)
    for method, reason in absent.items():
        typer.echo(f"left out: {method}. {reason}")
    config = config.without(absent)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("trials", total=None)

        def advance(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        results = run(
            config,
            trial,
            out,
            data_dir=data_dir,
            progress=advance,
            command="fcac " + shlex.join(sys.argv[1:]),
            left_out=absent,
            pictures=pictures,
            only_write=only_write,
        )
    for metric, found in results["ranks"].items():
        ranks = ", ".join(f"{method} {rank:.2f}" for method, rank in found["average_ranks"].items())
        typer.echo(f"average ranks, {'all measures' if metric == 'all' else metric}: {ranks}")
    typer.echo(f"tables: {out / 'results.md'}")
    return results


def _show(summary: dict[str, Any], out: Path) -> None:
    for method, counts in summary["agreement"].items():
        typer.echo(
            f"{method}: {counts['equal_digits']} of {counts['compared']} numbers equal the paper's in every printed "
            f"digit, {counts['beyond_2_standard_errors']} differ by more than two standard errors"
        )
    for name, by_metric in summary["comparisons"].items():
        ranks = by_metric["all"]["average_ranks"]
        typer.echo(f"average ranks, {name}: " + ", ".join(f"{method} {rank:.3f}" for method, rank in ranks.items()))
    typer.echo(f"tables: {out / 'tables.md'}")


def _split(names: str | None, by: str = ",") -> list[str]:
    return [name.strip() for name in (names or "").split(by) if name.strip()]


def _chosen_methods(names: str | None, known: tuple[str, ...]) -> list[str]:
    """Split names at semicolons or, where no known name has a comma in it, at commas."""
    text = names or ""
    return _split(text, ";") if ";" in text or text.strip() in known else _split(text)


def _working(what: str) -> Any:
    from rich.console import Console

    return Console(stderr=True).status(what)
