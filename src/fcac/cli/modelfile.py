"""Model files of the command line: the model, and the schema its rows came through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fcac.schema import RequestError, Schema


def save_model(model: Any, schema: Schema | None, path: Path) -> None:
    """Write a model with its schema, atomically: a reader or a crash finds the old file or the new one.

    `fcac.load` reads the file like any other and does not look at the schema.
    """
    from fcac import models, storage

    data = models.to_bytes(model)
    if schema is not None:
        meta, arrays = storage.unpack(data, kind="model")
        data = storage.pack("model", {**meta, "schema": schema.to_dict()}, arrays)
    storage.write_atomic(path, data)


def load_model(path: Path) -> tuple[Any, Schema | None]:
    """Read a model file and the schema in it, if any."""
    from fcac import models, storage

    if not path.is_file():
        raise RequestError(f"there is no model file {path}")
    data = path.read_bytes()
    try:
        model = models.from_bytes(data)
        found = storage.unpack(data, kind="model")[0].get("schema")
        return model, None if found is None else Schema.from_dict(found)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def columns_of(model: Any) -> list[str] | None:
    """Names of the model's features, if it knows them."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = getattr(model, "feature_names", None)
    return None if names is None else [str(name) for name in names]
