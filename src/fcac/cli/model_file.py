"""Model files for the command line: errors that name the file, and what a model knows about its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fcac.cli.terminal import BadUse
from fcac.exceptions import RequestError
from fcac.tables.schema import Schema


def load_model(path: Path) -> Any:
    """Read a model file; every error names the file."""
    from fcac.model import models

    if not path.is_file():
        raise RequestError(f"there is no model file {path}")
    return models.load(path)


def schema_of(model: Any) -> Schema | None:
    """Return the schema with which a model's rows were converted, if it has one."""
    found: Schema | None = getattr(model, "schema_", None) or getattr(model, "schema", None)
    return found


def columns_of(model: Any) -> list[str] | None:
    """Return the names of the model's features, if it has them."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = getattr(model, "feature_names", None)
    return None if names is None else [str(name) for name in names]


def open_ledger_again(model: Any, moved_to: Path | None) -> None:
    """Open the ledger as it is now: its budget may have been changed, and the file may have been moved."""
    from fcac.privacy import Ledger

    known = getattr(model.privacy, "ledger", None)
    if known is None and moved_to is not None:
        raise BadUse("the model was made without a ledger: leave out --ledger")
    if known is None:
        return
    if moved_to is None and not Path(known.path).exists():
        raise BadUse(
            f"there is no ledger {Path(known.path).name} beside the model or in this directory: say where it is with "
            "--ledger"
        )
    model.privacy.ledger = Ledger.open(known.path if moved_to is None else moved_to.resolve())
