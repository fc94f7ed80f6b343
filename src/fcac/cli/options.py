"""Options that several commands share: each is defined here, once.

Options that belong together are the fields of a dataclass, and a command takes such a dataclass as one parameter;
`spread` shows its fields to typer as options of the command.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fcac.cli.terminal import BadUse, check_out, help_text

if TYPE_CHECKING:
    from fcac.tables import ReadOptions, Tables
    from fcac.tables.schema import Schema


def option(about: str, *names: str, **more: Any) -> Any:
    """Describe an option; without names it is called like its parameter."""
    return typer.Option(*names, help=about, **more)


def data_option(about: str, **more: Any) -> Any:
    """Describe an option on data and sites."""
    return option(about, rich_help_panel="Data and sites", **more)


def privacy_option(about: str, *names: str, **more: Any) -> Any:
    """Describe an option on privacy."""
    return option(about, *names, rich_help_panel="Privacy", **more)


def argument(about: str, metavar: str) -> Any:
    """Describe an argument."""
    return typer.Argument(help=about, metavar=metavar, show_default=False)


Data = Annotated[
    list[str],
    argument(
        "Files (CSV, Parquet, Feather, NPZ, JSON lines, workbooks, SQLite, DuckDB), or directories of them, or the "
        "address of a database (postgresql://host/name).",
        "DATA...",
    ),
]
ModelPath = Annotated[Path, argument("A model file.", "MODEL")]
NewFile = Annotated[Path, option("File to write.", "--out", "-o")]
Force = Annotated[bool, option("Replace the output if it exists.", "--force")]
SchemaPath = Annotated[Path | None, data_option("Schema of the columns; see `fcac schema`.")]
Drop = Annotated[list[str] | None, data_option("Column to leave out (repeatable).", metavar="COLUMN")]
Keep = Annotated[list[str] | None, option("Column to copy to the output (repeatable).", metavar="COLUMN")]
Alpha = Annotated[
    float | None,
    option("Share of fresh rows like those learned that may be called novel (default 0.01).", metavar="RATE"),
]
MaxNodes = Annotated[
    int | None,
    option("Maximum number of nodes to which a site condenses its rows [4000]; not for --server cae-fc.", min=2),
]
MovedLedger = Annotated[Path | None, privacy_option("Path of the ledger, if it has been moved.", "--ledger")]
RecordId = Annotated[
    str | None,
    privacy_option(
        "Column that identifies the person of each row: promise and costs are then per person.", metavar="COLUMN"
    ),
]
Seed = Annotated[int, option("Seed of the server's shuffling.", min=0)]
AsJson = Annotated[bool, option("Print JSON.", "--json")]
ReportPath = Annotated[Path | None, option("Also write a report (HTML) here.", "--report")]


@dataclass(kw_only=True)
class Reading:
    """How tables are read."""

    query: Annotated[
        str | None,
        data_option(
            "For databases: the SQL query whose result is the table, or a .sql file that holds it.", metavar="SQL"
        ),
    ] = None
    read: Annotated[
        list[str] | None,
        data_option(
            "How to read files, if detection fails (repeatable): decimal=comma, separator=;, encoding=latin-1, "
            "gaps=WORD, header=no, newlines=yes, sheet=NAME.",
            metavar="NAME=VALUE",
        ),
    ] = None

    def how(self, **more: Any) -> ReadOptions:
        """Return the options as the readers take them."""
        from fcac.tables import ReadOptions

        return ReadOptions.parse(self.read or [], query=self.query, **more)


@dataclass(kw_only=True)
class Rows(Reading):
    """Tables, and the sites that their rows belong to."""

    site_column: Annotated[str | None, data_option("Column that names the site of each row.", metavar="COLUMN")] = None

    def open(self, data: list[str], schema: Schema | None, columns: list[str] | None = None, **more: Any) -> Tables:
        """Open tables whose columns are those of a schema, or these."""
        from fcac.tables import open_tables

        return open_tables(data, schema, columns=columns, site_column=self.site_column, options=self.how(), **more)

    def open_for(self, model: Any, data: list[str], schema: Schema | None = None, **more: Any) -> Tables:
        """Open tables that have the columns of a model, converted by its schema or by another."""
        from fcac.cli.learning import columns_of, schema_of

        chosen = schema or schema_of(model)
        return self.open(data, chosen, None if chosen is not None else columns_of(model), **more)


@dataclass(kw_only=True)
class SiteRows(Rows):
    """Tables of sites, and the people in them."""

    site: Annotated[
        str | None,
        data_option(
            "All rows belong to this site. Otherwise each file is a site, named after the file.", metavar="NAME"
        ),
    ] = None
    record_id: RecordId = None
    public_sites: Annotated[
        bool,
        privacy_option(
            "With --site-column: it is public which sites there are. Their names leave without noise.", "--public-sites"
        ),
    ] = False

    def check_names(self, mechanism: Any) -> None:
        """Refuse names of sites that come from rows and would leave without noise, unless they are public."""
        promises = getattr(mechanism, "guarantee", "none") != "none"
        if self.site_column is not None and promises and not self.public_sites:
            raise BadUse(
                "--site-column: the names of sites come from the rows, and leave without noise; nothing was charged. "
                "If it is public which sites there are, say so with --public-sites; if not, leave --site-column out"
            )

    def open(self, data: list[str], schema: Schema | None, columns: list[str] | None = None, **more: Any) -> Tables:
        """Open tables whose columns are those of a schema, or these."""
        from fcac.tables import site_from_text

        site = None if self.site is None else site_from_text(self.site)
        return super().open(data, schema, columns, site=site, record_id_column=self.record_id, **more)


@dataclass(kw_only=True)
class Spark:
    """Where the rows of a command are worked on."""

    engine: Annotated[str, data_option("process (this one), or spark: rows are condensed where Spark has them.")] = (
        "process"
    )
    master: Annotated[
        str | None,
        data_option("With --engine spark, as Spark has it: local[4], spark://host:7077, yarn.", metavar="MASTER"),
    ] = None

    def wanted(self, **given: Any) -> bool:
        """Tell whether Spark is asked for; a master without it, or options that do not apply on it, are errors."""
        one_of("engine", self.engine, "process", "spark")
        if self.engine != "spark":
            if self.master is not None:
                raise BadUse("--master is for --engine spark")
            return False
        for name, value in given.items():
            if value not in (None, False):
                plain = name.replace("_", "-")
                raise BadUse(f"--{plain} is not for --engine spark; leave it out, or use --engine process")
        return True


@dataclass(kw_only=True)
class Output:
    """A file that a command writes."""

    out: NewFile
    force: Force = False

    def check(self) -> Path:
        """Return the path, unless it cannot or should not be written."""
        check_out(self.out, self.force)
        return self.out


@dataclass(kw_only=True)
class NewModel:
    """Where a command writes the model that it has changed."""

    out: Annotated[Path | None, option("Write the new model here instead.", "--out", "-o")] = None
    force: Force = False

    def check(self, model: Path) -> Path:
        """Return the path, unless it cannot or should not be written."""
        if self.out is None:
            return model
        check_out(self.out, self.force or self.out.resolve() == model.resolve())
        return self.out


@dataclass(kw_only=True)
class Learning:
    """How a server and its sites learn; what these are called in `FCAC` and in a federation's settings."""

    server: Annotated[str, option("communities, or cae-fc (the paper's).")] = "communities"
    max_nodes: MaxNodes = None
    forgetting: Annotated[
        str,
        option(
            "How rows lose weight with the rounds: none, half-life=5 or window=10 (rounds); not for --server cae-fc.",
            metavar="RULE",
        ),
    ] = "none"
    scale: Annotated[
        str,
        option(
            "How columns are made comparable: auto (divided by their spread if their units differ), none, standard or "
            "robust; not for --server cae-fc.",
            metavar="RULE",
        ),
    ] = "auto"
    false_split_rate: Annotated[
        float,
        option("How often a table without clusters may come out as several; a higher rate finds more.", metavar="RATE"),
    ] = 0.1
    seed: Seed = 0

    def check(self, n_clusters: int | None) -> None:
        """Refuse what the server does not do, before any table is read."""
        from fcac.federation import readouts
        from fcac.federation.condenser import condenser_for

        if self.server not in readouts.names():
            raise BadUse(f"--server must be one of {', '.join(readouts.names())}, not {self.server}")
        readout = readouts.find(self.server)
        if n_clusters is not None and not readout.accepts_n_clusters:
            raise BadUse(f"--clusters: the {self.server} server determines the number itself; use --server communities")
        try:
            condenser_for(readout.condenser, self.max_nodes, forgetting=self.forgetting, scale=self.scale)
        except ValueError as error:
            raise BadUse(f"--{str(error).replace('max_nodes', 'max-nodes', 1)}") from None

    def settings(self) -> dict[str, Any]:
        """Return the options as `FCAC` takes them."""
        found = dict(vars(self))
        return {"random_state": found.pop("seed"), **found}


@dataclass(kw_only=True)
class Privacy:
    """What makes a release private."""

    epsilon: Annotated[
        float | None,
        privacy_option(
            "Release noised nodes, differentially private per record (with --record-id: per person), at this cost per "
            "round and site. Needs --schema with public bounds."
        ),
    ] = None
    delta: Annotated[float, privacy_option("With --epsilon.")] = 1e-6
    ledger: Annotated[
        Path | None,
        privacy_option("With --epsilon: file that records spending; it is charged before noise is drawn."),
    ] = None
    budget: Annotated[
        float | None,
        privacy_option("With a new --ledger: epsilon that may be spent over all rounds and sites."),
    ] = None
    mechanism: Annotated[
        str,
        privacy_option(
            "What --epsilon is for: release; local (noise on each record, for one record per device); paper (the "
            "paper's noise, for reproduction; it is no guarantee)."
        ),
    ] = "release"

    def make(self, schema: Schema | None, seed: int = 0) -> Any:
        """Return the privacy mechanism that the options ask for, or None."""
        one_of("mechanism", self.mechanism, "release", "local", "paper")
        wants_ledger = self.ledger is not None or self.budget is not None
        if self.epsilon is None:
            if wants_ledger or self.mechanism != "release":
                raise BadUse("--mechanism, --ledger and --budget need --epsilon")
            return None
        check_positive("epsilon", self.epsilon)
        if self.mechanism != "release" and wants_ledger:
            raise BadUse("--ledger and --budget are for --mechanism release")

        from fcac.privacy import LocalNoise, NodeRelease, PaperLaplace

        if self.mechanism == "paper":
            return PaperLaplace(self.epsilon, random_state=seed)
        if schema is None:
            raise BadUse("--epsilon needs --schema with public bounds; `fcac schema DATA --out schema.toml` drafts one")
        bounds = schema.require_bounds()  # an error if there are none
        if self.mechanism == "local":
            return LocalNoise(self.epsilon, schema.value_bounds)
        release = NodeRelease(self.epsilon, bounds, self.delta, self._open_ledger())
        release.sampler.check_ready()  # a missing extra should be reported before all data have been read
        return release

    def _open_ledger(self) -> Any:
        from fcac.privacy import Ledger

        if self.ledger is None:
            if self.budget is not None:
                raise BadUse("--budget needs --ledger, the file that records spending")
            return None
        path = self.ledger.resolve()
        if path.exists():
            ledger = Ledger.open(path)
            if self.budget is not None and self.budget != ledger.budget:
                raise BadUse(
                    f"{path.name} has a budget of {ledger.budget:g}, not {self.budget:g}: leave out --budget, or "
                    f"change it with `fcac ledger {path.name} --set-budget {self.budget:g}`"
                )
            return ledger
        if self.budget is None:
            raise BadUse("a new ledger needs --budget: the epsilon that may be spent over all rounds")
        return Ledger(path, self.budget, self.delta)


def one_of(name: str, value: str, *allowed: str) -> None:
    """Refuse a value that is not among those allowed."""
    if value not in allowed:
        raise BadUse(f"--{name} must be {', '.join(allowed[:-1])} or {allowed[-1]}, not {value}")


def check_positive(name: str, value: float | None) -> None:
    """Refuse a value that is given and is no finite number above 0."""
    if value is not None and not 0 < value < float("inf"):
        raise BadUse(f"--{name} must be a positive number, not {value}")


def spread(command: Callable[..., Any]) -> Callable[..., None]:
    """Return a command as typer reads it: the fields of its dataclasses are parameters of their own."""
    hints = get_type_hints(command, include_extras=True)
    shown: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if not dataclasses.is_dataclass(kind):
            shown.append(parameter.replace(annotation=kind, kind=parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = kind
        types = get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            default = parameter.empty if field.default is dataclasses.MISSING else field.default
            shown.append(
                inspect.Parameter(field.name, parameter.KEYWORD_ONLY, default=default, annotation=types[field.name])
            )

    def flat(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
        command(**given)

    flat.__name__, flat.__doc__ = command.__name__, command.__doc__
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    flat.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return flat


def add_commands(app: typer.Typer, package: ModuleType, order: Sequence[str]) -> list[str]:
    """Add the public functions of a package's files to an app as its commands, those that `order` names first."""
    found = {}
    for file in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(file.name)
        for name, command in inspect.getmembers(module, inspect.isfunction):
            if command.__module__ == file.name and not name.startswith("_"):
                found[name] = command
    names = [*order, *sorted(found.keys() - set(order))]
    for name in names:
        app.command(name, help=help_text(found[name]))(spread(found[name]))
    return names
