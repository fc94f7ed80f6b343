"""Options shared by several commands, and their conversion to tables and mechanisms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fcac.cli.console import BadUse
from fcac.privacy.mechanism import AnyMechanism, NodeMechanism

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
Sites = Annotated[
    int | None,
    typer.Option(
        "--sites", help="Simulate this many sites, called 1, 2, ...", metavar="N", min=1, rich_help_panel=_DATA,
        show_default=False,
    ),
]  # fmt: skip
Partition = Annotated[
    str,
    typer.Option(
        "--partition", help="With --sites: iid, dirichlet or classes; the last two need --label-column.",
        rich_help_panel=_DATA,
    ),
]  # fmt: skip
Alpha = Annotated[
    float,
    typer.Option(
        "--alpha", help="With --partition dirichlet: the smaller, the more sites differ.", rich_help_panel=_DATA
    ),
]
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
ClassesPerSite = Annotated[
    int,
    typer.Option("--classes-per-site", help="With --partition classes: labels per site.", min=1, rich_help_panel=_DATA),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label-column", help="Column of known labels, never used for clustering.", metavar="COLUMN",
        rich_help_panel=_DATA, show_default=False,
    ),
]  # fmt: skip
RecordId = Annotated[
    str | None,
    typer.Option(
        "--record-id", help="Column that identifies the person of each row: promise and costs are then per person.",
        metavar="COLUMN", rich_help_panel=_PRIVACY, show_default=False,
    ),
]  # fmt: skip
Part = Annotated[
    str | None,
    typer.Option(
        "--part", help="Part of the data, defined without looking at values (a day): the costs of different parts do "
        "not add up.",
        metavar="NAME", rich_help_panel=_PRIVACY, show_default=False,
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
LocalEpsilon = Annotated[
    float | None,
    typer.Option(
        "--local-noise", help="Local privacy, for one record per device: epsilon of a whole record. Needs --schema.",
        metavar="EPSILON", rich_help_panel=_PRIVACY, show_default=False,
    ),
]  # fmt: skip
PaperNoise = Annotated[
    float | None,
    typer.Option(
        "--paper-noise", help="The paper's noise, for reproduction. It is not a privacy guarantee.", metavar="EPSILON",
        rich_help_panel=_PRIVACY, show_default=False,
    ),
]  # fmt: skip
Seed = Annotated[int, typer.Option("--seed", help="Seed of the server's shuffling and of simulated sites.", min=0)]
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
    sites: int | None = None,
    partition: str = "iid",
    alpha: float = 0.5,
    classes_per_site: int = 2,
    label_column: str | None = None,
    record_id: str | None = None,
    keep: list[str] | None = None,
    seed: int = 0,
    query: str | None = None,
    read: list[str] | None = None,
) -> Tables:
    """Open tables according to the options of a command."""
    from fcac.tables import ReadOptions, Split, open_tables, site_from_text

    if partition != "iid" and sites is None:
        raise BadUse("--partition is for simulated sites: give --sites N")
    split = None if sites is None else Split(sites, partition, alpha, classes_per_site, seed)
    return open_tables(
        data,
        schema,
        columns=columns,
        drop=drop or [],
        site_column=site_column,
        site=None if site is None else site_from_text(site),
        split=split,
        label_column=label_column,
        record_id_column=record_id,
        keep=keep or [],
        options=ReadOptions.parse(read or [], query=query),
    )


def check_simulated(sites: int | None, mechanism: AnyMechanism | None) -> None:
    """Refuse simulated sites with a release: where a row is dealt to depends on the other rows."""
    if sites is not None and isinstance(mechanism, NodeMechanism):
        raise BadUse(
            "--sites deals out rows to simulated sites by their position, so one row more moves most of the others and "
            "--epsilon could not be promised: name sites by --site-column or by files, or leave out --epsilon"
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
    local_noise: float | None,
    paper_noise: float | None,
    seed: int,
) -> Any:
    """Return the privacy mechanism that the options request, or None."""
    wished = {"--epsilon": epsilon, "--local-noise": local_noise, "--paper-noise": paper_noise}
    given = [name for name, value in wished.items() if value is not None]
    if len(given) > 1:
        raise BadUse(f"{' and '.join(given)} exclude each other: choose one")
    for name, value in wished.items():
        if value is not None and not 0 < value < float("inf"):
            raise BadUse(f"{name} must be a positive number, not {value}")
    if epsilon is None and (ledger is not None or budget is not None):
        raise BadUse("--ledger and --budget need --epsilon")
    if not given:
        return None
    if given != ["--paper-noise"] and schema is None:
        raise BadUse(f"{given[0]} needs --schema with public bounds; `fcac schema DATA --out schema.toml` drafts one")

    from fcac.privacy import LocalNoise, NodeRelease, PaperLaplace

    if paper_noise is not None:
        return PaperLaplace(paper_noise, random_state=seed)
    assert schema is not None
    if local_noise is not None:
        schema.require_bounds()  # an error if there are none
        return LocalNoise(local_noise, schema.value_bounds)
    assert epsilon is not None
    mechanism = NodeRelease(epsilon, schema.require_bounds(), delta, _open_ledger(ledger, budget, delta))
    mechanism.sampler.check_ready()  # a missing extra should be reported before all data have been read
    return mechanism


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
