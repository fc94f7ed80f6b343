"""Broken schema files of every kind: the reader may refuse them, with a `SchemaError` and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from fcac.exceptions import SchemaError
from fcac.tables.schema import Schema

_WHOLE = """\
fcac_schema = 1
bounds_are_public = true
scaling = "none"
missing = "native"

[columns]
age = { min = 0, max = 120, scaling = "range", clip = true }
lab = { min = 0.1, max = 900, scaling = "log", weight = 2 }
grade = { kind = "ordinal", order = ["low", "mid", "high"] }
dx = { kind = "category", groups = { heart = ["I"], lung = ["J4", "J1"] } }
ward = { kind = "category", categories = ["a", "b"], missing = "drop" }
plz = { kind = "category", prefix = 2, features = 8 }
flag = { kind = "boolean", yes = ["ja"], no = ["nein"] }
day = { kind = "date", since = "2000-01-01", min = 1999-01-01, max = "2030-12-31" }
seen = { kind = "date", parts = ["month", "hour"], format = "%d.%m.%Y" }
id = { kind = "id" }
note = { kind = "ignore" }
"""
_VALUES = [
    *("-1", "0", "1e400", "nan", "inf", "true", "[]", "[[]]", "{}", '""', '"x"', "1979-05-27", "07:32:00", "[1, 2]"),
    *('["a", "a"]', "{ a = 1 }", '{ a = ["b"] }', "99999999999999999999999999", '"2000-13-45"', "1979-05-27T07:32:00Z"),
]


def _broken(rng: np.random.Generator) -> str:
    """A schema file in which something is wrong, or nothing, by chance."""
    text = _WHOLE
    for _ in range(rng.integers(1, 4)):
        how = rng.integers(5)
        lines = text.split("\n")
        if how == 0:  # another value for a setting
            at = [place for place, sign in enumerate(text) if sign == "="]
            place = int(rng.choice(at)) if at else 0
            end = min((e for e in (text.find(sign, place) for sign in ",}\n") if e > 0), default=len(text))
            text = text[: place + 1] + " " + str(rng.choice(_VALUES)) + " " + text[end:]
        elif how == 1:  # a letter
            place = int(rng.integers(max(len(text), 1)))
            text = text[:place] + chr(int(rng.choice([0, 9, 34, 61, 91, 123, 233, 8364, 0x1F600]))) + text[place + 1 :]
        elif how == 2:  # a line less, or twice
            place = int(rng.integers(len(lines)))
            text = "\n".join(
                lines[:place] + lines[place + 1 :] if rng.random() < 0.5 else lines[:place] + lines[place:] * 2
            )
        elif how == 3:  # cut off
            text = text[: int(rng.integers(max(len(text), 1)))]
        else:  # two settings exchanged
            words = ["kind", "min", "order", "parts", "groups", "prefix", "since", "missing", "scaling"]
            one, other = rng.choice(words, 2, replace=False)
            text = text.replace(one, "\0").replace(other, one).replace("\0", other)
    return text


def _try(n: int, seed: int) -> int:
    rng, refused = np.random.default_rng(seed), 0
    for _ in range(n):
        text = _broken(rng)
        try:
            schema = Schema.from_toml(text)
        except SchemaError:
            refused += 1
        else:
            assert Schema.from_toml(schema.to_toml()) == schema
    return refused


def test_broken_schemas_are_schema_errors():
    assert _try(500, 0) > 250


@pytest.mark.soak
def test_ten_thousand_broken_schemas_are_schema_errors():
    assert _try(10_000, 1) > 5000
