"""Options shared by several commands, and their conversion to tables and mechanisms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fcac.cli.terminal import BadUse

if TYPE_CHECKING:
    from fcac.tables import Tables
    from fcac.tables.schema import Schema

_DATA = "Data and sites"
_PRIVACY = "Privacy"

Data = Annotated[
    list[str],
    typer.Argument(
        help="Files (CSV, Parquet, Feather, NPZ, JSON lines, workbooks, SQLite, DuckDB), or directories of them, or "
        "the address of a database (postgresql://host/name).",
        metavar="DATA...",
        show_default=False,
    ),
]
Query = Annotated[
    str | None,
    typer.Option(
        "--query", help="For databases: the SQL query whose result is the table, or a .sql file that holds it.",
        metavar="SQL", rich_help_panel=_DATA, show_default=False,
    ),
]  # fmt: skip
Read = Annotated[
    list[str] | None,
    typer.Option(
        "--read", help="How to read files, if detection fails (repeatable): decimal=comma, separator=;, "
        "encoding=latin-1, gaps=WORD, header=no, newlines=yes, sheet=NAME.",
        metavar="NAME=VALUE", rich_help_panel=_DATA, show_default=False,
    ),
]  # fmt: skip
Engine = Annotated[
    str,
    typer.Option(
        "--engine", help="process (this one), or spark: rows are condensed where Spark has them.", rich_help_panel=_DATA
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master", help="With --engine spark, as Spark has it: local[4], spark://host:7077, yarn.", metavar="MASTER",
        rich_help_panel=_DATA, show_default=False,
    ),
]  # fmt: skip
ModelPath = Annotated[Path, typer.Argument(help="A model file.", metavar="MODEL", show_default=False)]
Out = Annotated[Path, typer.Option("--out", "-o", help="File to write.", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
SchemaPath = Annotated[
    Path | None,
    typer.Option(
        "--schema", help="Schema of the columns; see `fcac schema`.", rich_help_panel=_DATA, show_default=False
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop", help="Column to leave out (repeatable).", metavar="COLUMN", rich_help_panel=_DATA, show_default=False
    ),
]
SiteColumn = Annotated[
    str | None,
    typer.Option(
        "--site-column", help="Column that names the site of each row.", metavar="COLUMN", rich_help_panel=_DATA,
        show_default=False,
    ),
]  # fmt: skip
Site = Annotated[
    str | None,
    typer.Option(
        "--site", help="All rows belong to this site. Otherwise each file is a site, named after the file.",
        metavar="NAME", rich_help_panel=_DATA, show_default=False,
    ),
]  # fmt: skip
ServerName = Annotated[str, typer.Option("--server", help="communities, or cae-fc (the paper's).")]
Forgetting = Annotated[
    str,
    typer.Option(
        "--forgetting",
        help="How rows lose weight with the rounds: none, half-life=5 or window=10 (rounds); not for --server cae-fc.",
        metavar="RULE",
    ),
]
Scale = Annotated[
    str,
    typer.Option(
        "--scale",
        help="How columns are made comparable: auto (divided by their spread if their units differ), none, standard or "
        "robust; not for --server cae-fc.",
        metavar="RULE",
    ),
]
NoveltyRate = Annotated[
    float | None,
    typer.Option(
        "--alpha",
        help="Share of fresh rows like those learned that may be called novel (default 0.01).",
        metavar="RATE",
        show_default=False,
    ),
]
RecordId = Annotated[
    str | None,
    typer.Option(
        "--record-id", help="Column that identifies the person of each row: promise and costs are then per person.",
        metavar="COLUMN", rich_help_panel=_PRIVACY, show_default=False,
    ),
]  # fmt: skip
Epsilon = Annotated[
    float | None,
    typer.Option(
        "--epsilon", help="Release noised nodes, differentially private per record (with --record-id: per person), at "
        "this cost per round and site. Needs --schema with public bounds.",
        rich_help_panel=_PRIVACY, show_default=False,
    ),
]  # fmt: skip
Mechanism = Annotated[
    str,
    typer.Option(
        "--mechanism", help="What --epsilon is for: release; local (noise on each record, for one record per device); "
        "paper (the paper's noise, for reproduction; it is no guarantee).",
        rich_help_panel=_PRIVACY,
    ),
]  # fmt: skip
Delta = Annotated[float, typer.Option("--delta", help="With --epsilon.", rich_help_panel=_PRIVACY)]
LedgerPath = Annotated[
    Path | None,
    typer.Option(
        "--ledger", help="With --epsilon: file that records spending; it is charged before noise is drawn.",
        rich_help_panel=_PRIVACY, show_default=False,
    ),
]  # fmt: skip
MovedLedger = Annotated[
    Path | None,
    typer.Option(
        "--ledger", help="Path of the ledger, if it has been moved.", rich_help_panel=_PRIVACY, show_default=False
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget", help="With a new --ledger: epsilon that may be spent over all rounds and sites.",
        rich_help_panel=_PRIVACY, show_default=False,
    ),
]  # fmt: skip
Seed = Annotated[int, typer.Option("--seed", help="Seed of the server's shuffling.", min=0)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ReportPath = Annotated[
    Path | None, typer.Option("--report", help="Also write a report (HTML) here.", show_default=False)
]


def open_data(
    data: list[str],
    schema: Schema | None,
    columns: list[str] | None = None,
    *,
    drop: list[str] | None = None,
    site_column: str | None = None,
    site: str | None = None,
    record_id: str | None = None,
    keep: list[str] | None = None,
    query: str | None = None,
    read: list[str] | None = None,
) -> Tables:
    """Open tables according to the options of a command."""
    from fcac.tables import ReadOptions, open_tables, site_from_text

    return open_tables(
        data,
        schema,
        columns=columns,
        drop=drop or [],
        site_column=site_column,
        site=None if site is None else site_from_text(site),
        record_id_column=record_id,
        keep=keep or [],
        options=ReadOptions.parse(read or [], query=query),
    )


def load_schema(path: Path | None) -> Schema | None:
    """Read the schema named on the command line, if any."""
    from fcac.tables.schema import Schema

    return None if path is None else Schema.load(path)


def make_mechanism(
    schema: Schema | None,
    *,
    epsilon: float | None,
    delta: float,
    ledger: Path | None,
    budget: float | None,
    mechanism: str = "release",
    seed: int = 0,
) -> Any:
    """Return the privacy mechanism that the options request, or None."""
    if mechanism not in ("release", "local", "paper"):
        raise BadUse(f"--mechanism must be release, local or paper, not {mechanism}")
    if epsilon is None:
        if ledger is not None or budget is not None or mechanism != "release":
            raise BadUse("--mechanism, --ledger and --budget need --epsilon")
        return None
    if not 0 < epsilon < float("inf"):
        raise BadUse(f"--epsilon must be a positive number, not {epsilon}")
    if mechanism != "release" and (ledger is not None or budget is not None):
        raise BadUse("--ledger and --budget are for --mechanism release")

    from fcac.privacy import LocalNoise, NodeRelease, PaperLaplace

    if mechanism == "paper":
        return PaperLaplace(epsilon, random_state=seed)
    if schema is None:
        raise BadUse("--epsilon needs --schema with public bounds; `fcac schema DATA --out schema.toml` drafts one")
    bounds = schema.require_bounds()  # an error if there are none
    if mechanism == "local":
        return LocalNoise(epsilon, schema.value_bounds)
    release = NodeRelease(epsilon, bounds, delta, _open_ledger(ledger, budget, delta))
    release.sampler.check_ready()  # a missing extra should be reported before all data have been read
    return release


def _open_ledger(path: Path | None, budget: float | None, delta: float) -> Any:
    from fcac.privacy import Ledger

    if path is None:
        if budget is not None:
            raise BadUse("--budget needs --ledger, the file that records spending")
        return None
    path = path.resolve()
    if path.exists():
        ledger = Ledger.open(path)
        if budget is not None and budget != ledger.budget:
            raise BadUse(
                f"{path.name} has a budget of {ledger.budget:g}, not {budget:g}: leave out --budget, or change it with "
                f"`fcac ledger {path.name} --set-budget {budget:g}`"
            )
        return ledger
    if budget is None:
        raise BadUse("a new ledger needs --budget: the epsilon that may be spent over all rounds")
    return Ledger(path, budget, delta)
