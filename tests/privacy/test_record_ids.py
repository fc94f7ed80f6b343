"""Ids: one form for all spellings of one person, and batches that are the same in any order."""

from __future__ import annotations

import numpy as np
import pytest

from fcac.privacy.record_ids import batch_mark, canonical_id, check_record_ids, exact_ids, ids_in_form

KEY = b"k" * 32


@pytest.mark.parametrize(
    "same",
    [
        (
            "7",
            "7.0",
            " 7",
            "007",
            "7.",
            "+7",
            "\t7 ",
            "\uff17",
            "7e0",
            "70e-1",
            "7\u200b",
        ),  # the last is a full-width seven
        ("Ann Lee", "ann lee", "ANN LEE ", "annlee"),
        (
            "Ann-Lee",
            "Ann\u2010Lee",
            "Ann\u2013Lee",
            "Ann\u2212Lee",
            "Ann\U000e0100-Lee",
            "Ann\u180b-Lee",
            "Ann\u2800-Lee",
        ),
        ("Stra\u00dfe", "STRASSE"),
        ("na\u00efve", "nai\u0308ve"),
    ],
)
def test_spellings_of_one_person(same: tuple[str, ...]) -> None:
    assert len({canonical_id(text) for text in same}) == 1


@pytest.mark.parametrize("apart", [("7", "70"), ("7", "7.5"), ("7", "-7"), ("a7", "7"), ("a.05", "a.5")])
def test_people_who_are_not_the_same(apart: tuple[str, str]) -> None:
    assert canonical_id(apart[0]) != canonical_id(apart[1])


def test_the_form_is_stable() -> None:
    for text in ("7.0", "Ann", "id:416e", "\u1e9e", "-0"):
        assert canonical_id(canonical_id(text)) == canonical_id(text)


def test_exact_ids_stay_apart() -> None:
    names = ["Ann", "ann", "7", "007", 7]
    assert len({canonical_id(text) for text in exact_ids(names)}) == 4  # 7 is "7"
    assert ids_in_form(names, "folded") is names
    assert ids_in_form(names, "exact") == exact_ids(names)


@pytest.mark.parametrize("empty", [None, float("nan"), "", "   "])
def test_empty_ids_are_refused(empty: object) -> None:
    with pytest.raises(ValueError, match="empty id"):
        check_record_ids(["a", empty])


def test_a_batch_is_the_same_in_any_order_and_with_any_zero() -> None:
    rows = np.random.default_rng(0).integers(-2, 3, size=(50, 3)).astype(float)
    mark = batch_mark(KEY, rows)
    assert batch_mark(KEY, np.where(rows == 0, -0.0, rows)[::-1]) == mark
    assert batch_mark(KEY, rows[1:]) != mark
    assert batch_mark(b"q" * 32, rows) != mark
    assert batch_mark(KEY, rows[:0]) is None
