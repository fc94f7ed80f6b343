"""Options for reading tables: what a reader cannot know, or might guess wrongly, about one site's files or database.

They describe how values are written down, not what they mean (that is the schema), so every site has its own.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fcac.exceptions import RequestError

_SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
_DECIMALS = {"point": ".", "dot": ".", "comma": ",", ".": ".", ",": ","}
_YES_NO = {"yes": True, "no": False, "true": True, "false": False}

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


@dataclass(frozen=True)
class ReadOptions:
    """How to read tables; everything that is not given is detected.

    Parameters
    ----------
    separator : str, optional
        The sign between the cells of a text file.
    decimal : {".", ","}, optional
        The decimal sign of all numbers in text files; the other one of the two, a space or an apostrophe may then
        separate thousands.
    encoding : str, optional
        Encoding of text files, as in "latin-1" or "utf-16".
    gaps : tuple of str
        Words that stand for a missing value, in addition to the usual ones (:data:`GAP_WORDS`).
    header : bool
        Whether the first line of a text file, or the first row of a sheet, names the columns; without names they are
        called x0, x1, ...
    newlines : bool, optional
        Whether quoted cells of a text file may contain line breaks.
    sheet : str, optional
        The sheet of a workbook.
    query : str, optional
        The SQL query whose result is the table, for databases.
    new_by : str, optional
        For databases that are read round by round: a column whose values only grow, such as a serial number. Rows with
        a higher value than those of the last round are new.
    forgiving : bool
        Whether every row is read for itself, for private releases: a cell that is not what its column holds is a gap,
        and a row with too many or too few cells, or with a quote that does not end in its line, is passed over. Nothing
        is detected from rows: text is UTF-8 with decimal points and without line breaks in cells, unless it is said.

    Examples
    --------
    >>> from fcac.tables.read_options import ReadOptions
    >>> ReadOptions.parse(["decimal=comma", "gaps=k.A.", "gaps=999"])
    ReadOptions(decimal=',', gaps=('k.A.', '999'))
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    gaps: tuple[str, ...] = ()
    header: bool = True
    newlines: bool | None = None
    sheet: str | None = None
    query: str | None = None
    new_by: str | None = None
    forgiving: bool = False

    def __post_init__(self) -> None:
        if self.forgiving and self.newlines:
            raise RequestError(
                "--read newlines=yes is not for an epsilon: a quote in one row could swallow the rows below it. Leave "
                "it out; a row with line breaks in its cells is then passed over"
            )

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items())
        return f"ReadOptions({shown})"

    @property
    def gaps_in_numbers(self) -> frozenset[str]:
        """The gap words of columns of numbers and dates."""
        return GAP_WORDS | frozenset(self.gaps)

    @property
    def gaps_in_texts(self) -> frozenset[str]:
        """The words that a reader takes for gaps in columns of text."""
        return frozenset({"", *self.gaps})

    @classmethod
    def parse(cls, settings: Sequence[str] = (), *, query: str | None = None, new_by: str | None = None) -> ReadOptions:
        """Read options written as ``name=value``; a query may be the name of a file that ends in ``.sql``."""
        found: dict[str, Any] = {}
        for text in settings:
            name, sign, value = text.partition("=")
            name = name.strip()
            if not sign or name not in _PARSERS:
                raise RequestError(
                    f"--read {text!r}: write NAME=VALUE, as in decimal=comma; names are {', '.join(_PARSERS)}"
                )
            parsed = _PARSERS[name](value)
            found[name] = (*found.get("gaps", ()), parsed) if name == "gaps" else parsed
        return cls(**found, query=None if query is None else _read_query(query), new_by=new_by)

    def to_dict(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, as plain values; ``from_dict`` reads them."""
        defaults = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> ReadOptions:
        """Read options from plain values, as stored in a site's settings."""
        return cls(**{**found, "gaps": tuple(found.get("gaps", ()))})


def _separator(value: str) -> str:
    sign = _SEPARATORS.get(value, value.replace("\\t", "\t"))
    if len(sign) != 1 or not sign.isascii():
        raise RequestError(f"--read separator={value}: give one sign, or one of {', '.join(_SEPARATORS)}")
    return sign


def _decimal(value: str) -> str:
    if value not in _DECIMALS:
        raise RequestError(f"--read decimal={value}: write decimal=comma or decimal=point")
    return _DECIMALS[value]


def _encoding(value: str) -> str:
    try:
        return codecs.lookup(value).name
    except LookupError:
        raise RequestError(
            f"--read encoding={value}: there is no such encoding; write utf-8, latin-1, cp1252 or utf-16"
        ) from None


def _yes_or_no(value: str) -> bool:
    if value not in _YES_NO:
        raise RequestError(f"--read header and newlines take yes or no, not {value!r}")
    return _YES_NO[value]


_PARSERS: dict[str, Any] = {
    "separator": _separator,
    "decimal": _decimal,
    "encoding": _encoding,
    "gaps": str,
    "header": _yes_or_no,
    "newlines": _yes_or_no,
    "sheet": str,
}


def _read_query(query: str) -> str:
    if not query.endswith(".sql"):
        return query
    try:
        return Path(query).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"--query {query}: the file cannot be read ({type(error).__name__})") from None
