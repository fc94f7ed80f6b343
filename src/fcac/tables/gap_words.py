"""Words that stand for a missing value: public lists, the same for every reader."""

from __future__ import annotations

from collections.abc import Iterable

#: Words that mean "no value" in any column, unless the schema lists them among its categories ("-" can be a result).
ALWAYS = frozenset({"", "?", "-", "--", "n/a", "N/A", "#N/A", "#N/A N/A", "\\N", "(null)"})

#: Words that mean "no value" in a column of numbers or dates. In a column of text, "NA" may be a country and "None" an
#: answer, so there they are values.
GAP_WORDS = ALWAYS | frozenset(
    {
        *("#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "NA", "NaN", "-NaN", "-nan", "nan", "NAN", "<NA>", "NaT"),
        *("NULL", "null", "Null", "nil", "None", "none", "NONE", "missing", "Missing", "MISSING"),
        *("n.a.", "N.A.", "n. a.", "na", "n/d", "N/D", "n.d.", "k.A.", "k. A.", "s/o"),
        *(".", "..", "...", "---", "\u2013", "\u2014", "*", "unknown", "Unknown", "UNKNOWN", "unk", "UNK"),
        *("#VALUE!", "#DIV/0!", "#REF!", "#NUM!", "#NAME?", "#NULL!"),
    }
)


def for_numbers(more: Iterable[str] = ()) -> frozenset[str]:
    """Return the gap words of columns of numbers and dates, with those a user has added."""
    return GAP_WORDS | frozenset(more)


def for_texts(more: Iterable[str] = ()) -> frozenset[str]:
    """Return the words that a reader takes for gaps in columns of text: the empty one, and those a user has added."""
    return frozenset({"", *more})
