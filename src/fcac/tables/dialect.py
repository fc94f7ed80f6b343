"""How a text file writes a table down: its encoding, its separator, its header line, and its way of writing numbers."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import BinaryIO, NamedTuple

from fcac.exceptions import DataError
from fcac.tables.read_options import ReadOptions

_SEPARATORS = ",;\t|"
_FIRST_BYTES = 1 << 20
_MOST_BYTES = 1 << 26
_LINES = 50
_LINE_END = re.compile(r"\r\n|\n|\r")

# Signs that separate thousands, besides the one of "." and "," that is not the decimal sign. Excel, R and most
# countries' offices use one of these.
_GROUPING = " \u00a0\u202f'\u2019"


class Head(NamedTuple):
    """What the beginning of a text file tells about all of it.

    The encoding is a Python codec that needs no byte order mark, `guessed` if the file is not UTF-8. Rows begin behind
    byte `end`, after so many `lines`; `newlines` says whether quoted cells contain line breaks.
    """

    encoding: str
    guessed: bool
    separator: str
    names: list[str]
    end: int
    lines: int
    newlines: bool


def read_head(stream: BinaryIO, options: ReadOptions | None = None) -> Head:
    """Read the beginning of an uncompressed text file, up to the end of its header line.

    Forgiving options ask for what holds whatever the rows are: nothing is then found out from them.
    """
    options = options or ReadOptions()
    data = stream.read(_FIRST_BYTES)
    encoding, mark, guessed = _find_encoding(data, options.encoding, by_rows=not options.forgiving)
    while True:
        text = _decoded(data[mark:], encoding)
        start = len(text) - len(text.lstrip("\r\n\ufeff"))
        end = _end_of_record(text, start)
        if end is not None or len(data) >= _MOST_BYTES:
            break
        more = stream.read(15 * len(data) or 1)
        if not more:
            break
        data += more
    separator = options.separator
    line = text[start:end]
    if separator is None and (told := re.fullmatch(r"\s*\"?sep=(.)\"?\s*", line)):
        # a line that Excel writes and reads; it is not part of the table
        separator = told[1]
        start, end = end or len(text), _end_of_record(text, end or len(text))
        line = text[start:end]
    if separator is None:
        separator = _find_separator(line if options.forgiving else text[start:])
    cells = _cells(line, separator)
    if options.header:
        names = [cell.strip() for cell in cells]
        stop = len(text) if end is None else end
    else:
        names = [f"x{i}" for i in range(len(cells))]
        stop = start
    newlines = False if options.forgiving else options.newlines
    if newlines is None:
        newlines = any(piece.count('"') % 2 for piece in _LINE_END.split(text[start : start + _FIRST_BYTES // 4])[:-1])
    return Head(
        encoding=encoding,
        guessed=guessed,
        separator=separator,
        names=names,
        end=mark + len(_encoded(text[:stop], encoding)),
        lines=len(_LINE_END.findall(text[:stop])),
        newlines=newlines,
    )


def _find_encoding(data: bytes, wished: str | None, by_rows: bool = True) -> tuple[str, int, bool]:
    """Return the codec, the length of the byte order mark, and whether it is a guess."""
    for mark, codec in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark) and wished in (None, codec, codec[:6], "utf-8-sig"):
            return codec, len(mark), False
    if wished is not None:
        wished = {"utf-16": "utf-16-le", "utf-8-sig": "utf-8"}.get(wished, wished)
        return wished, 0, False
    if not by_rows:
        return "utf-8", 0, False
    sample = data[:4096]
    if sample.count(0) > len(sample) // 4:
        # text in Western letters has a zero in every second byte; which one tells the order of bytes
        return ("utf-16-le" if sample[1::2].count(0) > sample[::2].count(0) else "utf-16-be"), 0, False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=False)
    except UnicodeDecodeError:
        try:
            data.decode("cp1252")
        except UnicodeDecodeError:
            return "latin-1", 0, True
        return "cp1252", 0, True
    return "utf-8", 0, False


def _decoded(data: bytes, encoding: str) -> str:
    # what cannot be decoded is found when the rows are read; here it must only keep its length in bytes
    if encoding == "utf-8":
        return data.decode("utf-8", "surrogateescape")
    if encoding.startswith("utf-16"):
        return data[: len(data) // 2 * 2].decode(encoding, "surrogatepass")
    return data.decode(encoding, "replace")


def _encoded(text: str, encoding: str) -> bytes:
    if encoding == "utf-8":
        return text.encode("utf-8", "surrogateescape")
    if encoding.startswith("utf-16"):
        return text.encode(encoding, "surrogatepass")
    return text.encode(encoding, "replace")


def _end_of_record(text: str, start: int) -> int | None:
    """Return where the record that begins here ends, with its line break; None if it does not end in this text."""
    for found in _LINE_END.finditer(text, start):
        if text.count('"', start, found.start()) % 2 == 0:
            return found.end()
    return None


def _cells(line: str, separator: str) -> list[str]:
    try:
        rows = list(csv.reader([line], delimiter=separator)) if "\n" not in line.rstrip("\r\n") else []
        return rows[0] if rows else next(csv.reader(line.splitlines(keepends=True), delimiter=separator), [])
    except (csv.Error, TypeError, ValueError):
        raise DataError("the header line cannot be read: is this a text file with one table?") from None


def _find_separator(text: str) -> str:
    """Return the sign that divides the first lines into the same number of cells, and into most."""
    lines = [line for line in _LINE_END.split(text[: _FIRST_BYTES // 4])[:_LINES] if line.strip()]
    if not lines:
        return ","
    best, choice = (False, -1.0, -1), ","
    for sign in _SEPARATORS:
        try:
            widths = [len(row) for row in csv.reader(lines, delimiter=sign)]
        except csv.Error:
            continue
        same = sum(width == widths[0] for width in widths) / len(widths)
        # a cell too many in some rows is likelier than a separator that the header line has and few rows have
        score = (widths[0] > 1, same if same > 0.5 else 0.0, widths[0])
        if score > best:
            best, choice = score, sign
    if not best[0] and len({len(line.split(" ")) for line in lines}) == 1 and len(lines) > 1 and " " in lines[0]:
        return " "  # words of a single name would not recur in every row
    return choice


# ------------------------------------------------------------ numbers


def number_pattern(decimal: str) -> str:
    """Return the regular expression (of Python and of RE2) for numbers with this decimal sign and grouped thousands.

    >>> [bool(re.fullmatch(number_pattern(","), text)) for text in ("1.234,5", "12,5", "1 234", "1.5", "12.34,5")]
    [True, True, True, False, False]
    """
    groups = f"[{_GROUPING}{'.' if decimal == ',' else ','}]"
    point = re.escape(decimal)
    return rf"[+-]?(?:[1-9][0-9]{{0,2}}(?:{groups}[0-9]{{3}})+|[0-9]+)?(?:{point}[0-9]*)?(?:[eE][+-]?[0-9]+)?"


def grouping_pattern(decimal: str) -> str:
    """Return the regular expression for signs that separate thousands."""
    return f"[{_GROUPING}{'.' if decimal == ',' else ','}]"


class NumberForms(NamedTuple):
    """The decimal sign of columns of numbers that a plain reader takes for text, and columns that could have either."""

    decimals: dict[str, str]
    doubtful: list[str]


def find_number_forms(
    texts: Mapping[str, Sequence[str]], plain: Iterable[str], separator: str, wished: str | None
) -> NumberForms:
    """Find out which columns of text, their cells without gap words, are numbers, and with which decimal sign.

    A column such as 1,234 and 2,500 could be thousands or decimals. The sign that is wished decides, or what the other
    columns and those in `plain`, already taken for numbers, show; without them, the custom of the separator does: files
    with semicolons come from where the decimal sign is a comma.

    >>> find_number_forms({"a": ["1,5", "2"], "b": ["1,250"], "c": ["Anna"]}, [], ";", None)
    NumberForms(decimals={'a': ',', 'b': ','}, doubtful=[])
    """
    plain = set(plain)
    fits = {name: _fitting(cells) for name, cells in texts.items()}
    if wished is not None:
        chosen = {
            name: wished
            for name, found in fits.items()
            if wished in found and (name not in plain or (wished == "," and any("." in cell for cell in texts[name])))
        }
        return NumberForms(chosen, [])
    # columns that can be read in one way only show the custom of the file
    shown = {next(iter(found)) for name, found in fits.items() if len(found) == 1}
    custom = next(iter(shown)) if len(shown) == 1 else None
    decimals: dict[str, str] = {}
    doubtful = []
    for name, found in fits.items():
        if name in plain:
            # 1.234 beside a column of decimal commas means 1234
            if custom == "," and "," in found and any("." in cell for cell in texts[name]):
                decimals[name] = ","
        elif len(found) == 1:
            decimals[name] = next(iter(found))
        elif found:
            if custom is None and any("," in cell or "." in cell for cell in texts[name]):
                doubtful.append(name)
            decimals[name] = custom or ("," if separator == ";" else ".")
    return NumberForms(decimals, doubtful)


def _fitting(cells: Sequence[str]) -> set[str]:
    """Return the decimal signs with which every cell is a number."""
    found = set()
    for decimal in ",.":
        pattern = re.compile(number_pattern(decimal))
        if cells and all(any(sign.isdigit() for sign in cell) and pattern.fullmatch(cell) for cell in cells):
            found.add(decimal)
    return found
