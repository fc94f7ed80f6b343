"""`fcac reproduce`: the paper's figures and tables, and comparisons with the field, each from one command."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fcac.cli.options import option, spread

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

      fcac reproduce federated --quick --data-dir data

      fcac reproduce networks --quick --data-dir data

      fcac reproduce scale --quick
    """,
)

Out = Annotated[Path, option("Directory for the results; a stopped run continues from there.")]


@dataclass(kw_only=True)
class Paper:
    """What is run of the paper's evaluation."""

    data_dir: Annotated[
        Path | None, option("Directory with a NAME.npz (X, y) for each set; by default they come from OpenML.")
    ] = None
    datasets: Annotated[str | None, option("Comma-separated names of sets; all ten by default.")] = None
    trials: Annotated[int | None, option("Trials per cell; by default 20, as in the paper.", min=1, max=20)] = None
    jobs: Annotated[int | None, option("Number of processes; one per core by default.")] = None
    quick: Annotated[bool, option("Three small data sets, at most three trials: a minute or two.", "--quick")] = False


@dataclass(kw_only=True)
class Grid(Paper):
    """What is run of one grid of trials."""

    methods: Annotated[str | None, option("Comma-separated names of methods; all by default.")] = None
    only_write: Annotated[
        bool, option("Run no trials; write the tables from those already finished.", "--only-write")
    ] = False


@dataclass(kw_only=True)
class Comparison:
    """What is run of a comparison with the field."""

    data_dir: Annotated[Path | None, option("Directory with a NAME.npz (X, y) for each set that is not made.")] = None
    sets: Annotated[str | None, option("Names of sets, separated by semicolons; all by default.")] = None
    methods: Annotated[
        str | None, option("Names of methods, separated by semicolons (or commas, if no name has one).")
    ] = None
    trials: Annotated[int | None, option("Trials per set and method; as published.", min=1)] = None
    quick: Annotated[bool, option("Few sets, one trial: a minute or two.", "--quick")] = False
    only_write: Annotated[
        bool, option("Run no trials; write the tables from those already finished.", "--only-write")
    ] = False


def figures(
    out: Out = Path("out/figures"),
    seed: Annotated[int, option("Seed of data and noise.")] = 0,
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


def _grid(name: str, words: str) -> Callable[[Grid, Path], None]:
    """Make the command that runs one of the grids of trials under the paper's protocol."""

    def command(grid: Grid, out: Out = Path("out") / name) -> None:
        _run(name, grid, out)
        if name == "privacy":
            _attack(out)

    command.__name__, command.__doc__ = name, words
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
    from rich.console import Console

    from fcac.paper.attacks import attack_figures
    from fcac.persistence import write_atomic

    with Console(stderr=True).status("attacking the paper's noise"):
        attacks = attack_figures()
    write_atomic(out / "attacks.json", (json.dumps(attacks, indent=1) + "\n").encode())
    typer.echo(f"outcome of the attacks: {out / 'attacks.json'}")


def one_table(comparison: Comparison, out: Out = Path("out/one-table")) -> None:
    """Cluster one table with fcac and its peers: HDBSCAN, PLSCAN, Leiden, Genie, k-means and others.

    Sets that were at hand while fcac was chosen and sets that were not stand apart; rank tests are on the latter. Sets
    beyond those that are made on the spot come from NAME.npz files in --data-dir.

    Examples:

      fcac reproduce one-table --quick

      fcac reproduce one-table --sets "two moons;iris" --methods fcac,HDBSCAN,GNG
    """
    from fcac.paper.one_table import trial

    _compare("one-table", trial, comparison, out)


def private(
    comparison: Comparison,
    epsilons: Annotated[str | None, option("Comma-separated; as published by default.")] = None,
    diffprivlib: Annotated[
        Path | None, option("Python of an environment with diffprivlib; by default this one.")
    ] = None,
    out: Out = Path("out/private"),
) -> None:
    """Compare private clusterings at equal epsilon: releases, noise on rows, private k-means; with a picture.

    A set of your own is a file NAME.npz in --data-dir with X, y and bounds (d, 2), and n_sites if it is not ten.

    Examples:

      fcac reproduce private --quick

      fcac reproduce private --diffprivlib venv-diffprivlib/bin/python

      fcac reproduce private --data-dir data --sets "digits;mine" --epsilons 1,4
    """
    from fcac.paper import private as trials
    from fcac.paper.config import Config

    python = str(diffprivlib or sys.executable)

    def at_each_epsilon(config: Config) -> Config:
        chosen = [float(text) for text in _split(epsilons)] or config.epsilons
        return replace(config, sets=tuple(trials.name_at(name, e) for name in config.sets for e in chosen))

    results = _compare(
        "private",
        trials.trial_with(python),
        comparison,
        out,
        left_out=lambda names: trials.left_out(names, python),
        prepare=at_each_epsilon,
        picture="epsilon.png",
    )
    trials.draw(results, out / "epsilon.png")
    typer.echo(f"picture: {out / 'epsilon.png'}")


def federated(comparison: Comparison, out: Out = Path("out/federated")) -> None:
    """Compare federated clusterers on the paper's sets: those told the number of clusters, and those that find it.

    Example: fcac reproduce federated --quick --data-dir data
    """
    from fcac.paper import federated as trials
    from fcac.paper.config import Config
    from fcac.paper.grid import SCENARIOS

    def in_both_scenarios(config: Config) -> Config:
        return replace(config, sets=tuple(trials.name_in(name, s) for name in config.sets for s in SCENARIOS))

    _compare("federated", trials.trial, comparison, out, prepare=in_both_scenarios)


def continual(comparison: Comparison, out: Out = Path("out/continual")) -> None:
    """Measure forgetting: class after class and drifting streams, with a picture.

    Example: fcac reproduce continual --quick
    """
    from fcac.paper import continual as trials
    from fcac.paper.runs import stored_trials

    results = _compare("continual", trials.trial, comparison, out, picture="forgetting.png")
    trials.draw(results, lambda name, method: stored_trials(out, name, method), out / "forgetting.png")
    typer.echo(f"picture: {out / 'forgetting.png'}")


def scale(
    quick: Annotated[bool, option("Fewer sites: a minute or two.", "--quick")] = False,
    out: Out = Path("out/scale"),
) -> None:
    """Compute what a study of 10,000 sites costs from measured unit costs, and check it against virtual sites.

    Example: fcac reproduce scale --quick
    """
    from rich.console import Console

    from fcac.paper import scale as costs

    command = "fcac " + shlex.join(sys.argv[1:])
    with Console(stderr=True).status("measuring") as status:
        costs.run(out, costs.QUICK if quick else None, say=status.update, command=command)
    typer.echo(f"tables: {out / 'results.md'}")


def everything(paper: Paper, out: Out = Path("out")) -> None:
    """Run figures, tables, privacy, quality and the comparisons, one after the other.

    Example: fcac reproduce all --data-dir data --out out
    """
    figures(out / "figures")
    for name, play in (("tables", tables), ("privacy", privacy), ("quality", quality), ("networks", networks)):
        play(Grid(**vars(paper)), out / name)
    for name, compare in (
        ("one-table", one_table),
        ("continual", continual),
        ("private", private),
    ):
        compare(Comparison(quick=paper.quick), out=out / name)
    federated(Comparison(quick=paper.quick, data_dir=paper.data_dir), out / "federated")
    scale(paper.quick, out / "scale")


_COMMANDS: dict[str, Callable[..., None]] = {
    "figures": figures, "tables": tables, "privacy": privacy, "quality": quality, "networks": networks,
    "one-table": one_table, "private": private, "federated": federated,
    "continual": continual, "scale": scale, "all": everything,
}  # fmt: skip
for _name, _command in _COMMANDS.items():
    app.command(_name)(spread(_command))


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[int, int, str], None]]:
    """Show how many trials are done, and which one runs."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("trials", total=None)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what)


def _run(name: str, grid: Grid, out: Path) -> None:
    from fcac.paper import check_extra

    check_extra()
    from fcac.paper.config import read_grid
    from fcac.paper.grid import Cell, epsilon_name
    from fcac.paper.grid_results import reproduce_tables

    config = read_grid(name, quick=grid.quick)
    out.mkdir(parents=True, exist_ok=True)
    with _bar() as show:

        def advance(done: int, total: int, cell: Cell) -> None:
            show(done, total, f"{cell.dataset} {cell.scenario} eps={epsilon_name(cell.epsilon)} {cell.method}")

        summary = reproduce_tables(
            out,
            datasets=_split(grid.datasets) or config.sets,
            methods=_split(grid.methods) or config.methods,
            epsilons=config.epsilons,
            n_trials=config.trials if grid.trials is None else min(grid.trials, config.trials),
            data_dir=None if grid.data_dir is None else str(grid.data_dir),
            n_jobs=grid.jobs,
            progress=advance,
            only_write=grid.only_write,
            title=config.title,
        )
    _show(summary, out)


def _compare(
    name: str,
    trial: Any,
    comparison: Comparison,
    out: Path,
    left_out: Callable[[tuple[str, ...]], dict[str, str]] | None = None,
    prepare: Callable[[Any], Any] | None = None,
    picture: str | None = None,
) -> dict[str, Any]:
    from fcac.paper import check_extra

    check_extra()
    from fcac.paper.config import read_config, with_files
    from fcac.paper.peers import missing
    from fcac.paper.runs import run

    config = with_files(read_config(name, quick=comparison.quick), comparison.data_dir)
    methods = _chosen_methods(comparison.methods, config.methods)
    config = config.narrowed(_split(comparison.sets, ";"), methods, comparison.trials)
    config = prepare(config) if prepare is not None else config
    absent = (left_out or missing)(config.methods)
    for method, reason in absent.items():
        typer.echo(f"left out: {method}. {reason}")
    config = config.without(absent)
    with _bar() as show:
        results = run(
            config,
            trial,
            out,
            data_dir=comparison.data_dir,
            progress=show,
            command="fcac " + shlex.join(sys.argv[1:]),
            left_out=absent,
            pictures=() if picture is None else (picture,),
            only_write=comparison.only_write,
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
