"""How a model came about: settings, schema, versions, rows, seeds and time; enough to repeat it."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from fcac._text import counted, duration
from fcac._version import __version__
from fcac.federation import Server
from fcac.federation.summed_round import sites_behind
from fcac.model.fcac import FCAC
from fcac.model.storage import Run

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")
_MAX_COLUMNS = 200
_MAX_ROUNDS = 12
_MAX_REASONS = 8


@dataclass(frozen=True)
class Provenance:
    """What was done: settings, rows read and left out, versions, and what the schema says of each column.

    Numbers of rows are 0 if they are not known.
    """

    settings: list[tuple[str, str]]
    rows: list[tuple[str, str]]
    versions: list[tuple[str, str]]
    schema: list[tuple[str, str]]
    n_read: int = 0
    n_dropped: int = 0


def provenance_of(
    server: Server, estimator: FCAC | None, schema: Any, facts: Mapping[str, Any] | None, *, federation: bool
) -> Provenance:
    """Return what was done.

    `facts` are what the caller knows of the run, ``rows_read``, ``rows_dropped`` and ``seconds``, instead of what is
    stored with the model; anything else in it is listed as it is.
    """
    runs = () if estimator is None else estimator.runs_
    known = {
        "rows_read": sum(run.rows_read for run in runs),
        "rows_dropped": sum(run.rows_dropped for run in runs),
        "seconds": None,
        **(facts or {}),
    }
    n_read, n_dropped = int(known.pop("rows_read")), int(known.pop("rows_dropped"))
    seconds = known.pop("seconds")
    rows: list[tuple[str, str]] = []
    if n_read:
        rows.append(("Rows read", f"{n_read:,}{_per_round(runs)}"))
        rows.append(("Rows left out", f"{n_dropped:,}{_why(runs) if n_dropped else ''}"))
    elif estimator is not None and hasattr(estimator.privacy, "release"):
        rows.append(("Rows read", "not told: under privacy, exact counts stay at the sites"))
    if seconds is not None:
        rows.append(("Time to learn", duration(float(seconds))))
    rows += [(str(key), str(value)) for key, value in known.items()]
    return Provenance(
        _settings(server, estimator, federation),
        rows,
        _versions(),
        [] if schema is None else _schema_lines(schema),
        n_read,
        n_dropped,
    )


def _per_round(runs: Sequence[Run]) -> str:
    if len(runs) < 2:
        return ""
    shown = ", ".join(f"{run.rows_read:,}" for run in runs[-_MAX_ROUNDS:])
    return f" in {len(runs)} rounds ({'latest: ' if len(runs) > _MAX_ROUNDS else ''}{shown})"


def _why(runs: Sequence[Run]) -> str:
    """Which columns had the gaps because of which rows were dropped; a row can have several."""
    columns: Counter[str] = Counter()
    for run in runs:
        columns.update(run.dropped_for)
    if not columns:
        return "; they had missing values, and the schema says to drop such rows"
    listed = [f"{name} ({n:,})" for name, n in columns.most_common(_MAX_REASONS)]
    more = len(columns) - len(listed)
    return f": a value was missing in {', '.join(listed)}{f' and {more} more' if more else ''}, which the schema drops"


def _settings(server: Server, estimator: FCAC | None, federation: bool) -> list[tuple[str, str]]:
    wanted, title = server.readout.settings.n_clusters, type(server.readout).title
    listed = [
        ("Where", "sites sent contributions to a server" if federation else "all sites in one process"),
        ("Server", server.kind if title == server.kind else f"{server.kind}: {title}"),
        ("Seed of the server", str(server.random_state)),
        ("Number of clusters", f"{wanted}, as asked" if wanted else "found"),
    ]
    if estimator is not None:
        usual = FCAC().get_params(deep=False)
        for name, value in estimator.get_params(deep=False).items():
            if name not in ("server", "random_state", "n_clusters", "privacy", "n_jobs") and value != usual[name]:
                listed.append((name, str(value)))
        if estimator.privacy is not None:
            listed.append(("Privacy", type(estimator.privacy).__name__))
    if server.has_nodes:
        listed.append(("Columns made comparable", server.scaling.sentence))
    listed.append(("Rounds", f"{server.n_rounds:,}"))
    listed.append(("Sites", f"{sum(sites_behind(item) for item in server.latest().values()):,}"))
    return listed


def _versions() -> list[tuple[str, str]]:
    found = [("fcac", __version__), ("Python", platform.python_version())]
    for name in _PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:  # installed in another way
            continue
    return found


def _schema_lines(schema: Any) -> list[tuple[str, str]]:
    lines = []
    for field in schema.fields[:_MAX_COLUMNS]:
        settings = [f"{key} {_plain(value)}" for key, value in field.settings().items()]
        lines.append((field.name, ", ".join(settings) if settings else "as it is"))
    more = len(schema.fields) - len(lines)
    return [*lines, (f"and {counted(more, 'column')} more", "")] if more else lines


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        shown = ", ".join(str(item) for item in value[:8])
        return shown + (f" and {len(value) - 8} more" if len(value) > 8 else "")
    return f"{value:g}" if isinstance(value, float) else str(value)
