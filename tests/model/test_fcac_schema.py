"""A model carries the schema of its tables; a codebook is one class with one saved form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fcac import FCAC, load, persistence, save
from fcac.cli.learning import schema_of
from fcac.clusters import Communities
from fcac.codebook import Codebook
from fcac.model import storage
from fcac.tables.schema import Column, Schema
from testing.data import diagonal_blobs

# the names are not in alphabetical order, so that an order lost on the way would show
SCHEMA = Schema([Column("b", min=0, max=10, scaling="range"), Column("a")])


def rows(seed: int, n: int = 600) -> np.ndarray:
    return diagonal_blobs(n, seed, spread=0.3)


def streamed(schema: Schema | None = SCHEMA) -> FCAC:
    pieces = iter([("x", rows(1)), ("y", rows(2))])
    return FCAC(random_state=0).play_stream(pieces, 2, ["b", "a"], schema=schema)


@pytest.mark.slow
def test_schema_is_saved_loaded_and_exported(tmp_path: Path) -> None:
    model = streamed()
    save(model, tmp_path / "m.fcac")
    save(model.export(), tmp_path / "book.fcac")
    for name, model_of_it in (("m.fcac", FCAC), ("book.fcac", Codebook)):
        again = load(tmp_path / name)
        assert isinstance(again, model_of_it)
        assert schema_of(again) == SCHEMA
    again = load(tmp_path / "m.fcac")
    assert again.play_stream(iter([("x", rows(3))]), 2, schema=SCHEMA).schema_ == SCHEMA


@pytest.mark.slow
def test_a_schema_that_does_not_fit_is_refused() -> None:
    wide = Schema(["a", "b", "c"])
    with pytest.raises(ValueError, match="schema has 3 features"):
        streamed(wide)
    with pytest.raises(ValueError, match="started with another"):
        streamed().play_stream(iter([("x", rows(3))]), 2, schema=Schema(["b", "a"]))
    with pytest.raises(ValueError, match="schema has 3 features"):
        Codebook([[0.0, 0.0]], [0], schema=wide)
    for stored in (streamed(), streamed().export()):
        meta, arrays = persistence.unpack(storage.to_bytes(stored), kind="model")
        for bad in (wide.to_toml(), wide.to_dict(), Schema(["a", "x"]).to_dict(), {"nonsense": 1}, 7, "nonsense"):
            with pytest.raises(ValueError, match=r"schema|incomplete|TOML"):
                storage.from_bytes(persistence.pack("model", {**meta, "schema": bad}, arrays))


@pytest.mark.slow
def test_fit_on_arrays_has_no_schema() -> None:
    model = streamed()
    assert model.partial_fit({"x": pd.DataFrame(rows(3), columns=["b", "a"])}).schema_ == SCHEMA
    assert model.fit(rows(4)).schema_ is None


@pytest.mark.slow
def test_there_is_one_codebook(tmp_path: Path) -> None:
    X = rows(5) * [1.0, 1000.0]
    model = Communities().set_site("x", X, np.ones(len(X))).fit()
    book = model.condense(max_nodes=40)
    assert type(book) is Codebook
    assert np.array_equal(book.scales, model.feature_scales)
    assert book.counts is not None
    assert book.counts.sum() == len(X)
    save(book, tmp_path / "book.fcac")
    again = load(tmp_path / "book.fcac")
    assert np.array_equal(again.predict(X), book.predict(X))
    assert np.array_equal(again.counts, book.counts)
    assert np.array_equal(again.scales, book.scales)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"counts": [1.0]}, "counts"),
        ({"counts": [1.0, -1.0]}, "counts"),
        ({"scale": [1.0, 0.0]}, "scale"),
        ({"feature_names": ["a"]}, "name per feature"),
        ({"bandwidth": 0.0}, "bandwidth"),
    ],
)
def test_a_codebook_says_what_is_wrong(kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Codebook([[0.0, 0.0], [1.0, 1.0]], [0, 1], **kwargs)


def test_a_codebook_refuses_rows_of_another_width() -> None:
    with pytest.raises(ValueError, match="3 features"):
        Codebook([[0.0, 0.0]], [0]).predict([[1.0, 2.0, 3.0]])
