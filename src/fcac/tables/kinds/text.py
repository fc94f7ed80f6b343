"""``kind = "text"``: free text, turned into a vector by a frozen public encoder."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from fcac._typing import Floats
from fcac.exceptions import RequestError
from fcac.tables.kind import Encoded, Kind, as_text, refuse
from fcac.tables.read_options import ALWAYS

if TYPE_CHECKING:
    from fcac.tables.column import Column

DEFAULT_ENCODER = "wordllama"


class Text(Kind):
    """The vector of an encoder, which all sites must have in the same version. An empty text is a gap."""

    keys = ("encoder", "scaling")
    reads = "text"
    block = "numbers"

    def check(self, column: Column) -> None:
        if column.missing == "fill":
            raise refuse(column, 'missing = "fill" is for numbers; use "native", "error" or "drop" with text')

    def feature_names(self, column: Column) -> list[str]:
        width = _encoders().width(self._encoder(column))
        return [f"{column.name}~{number}" for number in range(1, width + 1)]

    def bounds(self, column: Column) -> list[tuple[float, float]] | None:
        return [(-1.0, 1.0)] * len(self.feature_names(column))  # vectors have length one

    def encode(self, column: Column, values: Any) -> Encoded:
        texts = as_text(column, values, "texts", ALWAYS).to_pylist()
        filled = [number for number, text in enumerate(texts) if text is not None and text.strip()]
        features: Floats = np.full((len(texts), len(self.feature_names(column))), np.nan)
        if filled:
            features[filled] = _encoders().encode([texts[number] for number in filled], self._encoder(column))
        return Encoded(np.ascontiguousarray(features.T))

    def _encoder(self, column: Column) -> str:
        return column.encoder or DEFAULT_ENCODER


def _encoders() -> Any:
    try:
        return import_module("fcac.tables.text_encoder")
    except ModuleNotFoundError:
        raise RequestError('columns of kind = "text" need an encoder: pip install "fcac[text]"') from None
