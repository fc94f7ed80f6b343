"""Finds table files and opens each with the reader for its format.

:func:`open_table` is the only way from a file to Arrow batches, for the commands and for the sites of a federation
alike: what a cell means must not depend on who reads it.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from fcac._sites import SiteName, order_key
from fcac.exceptions import DataError, RequestError
from fcac.tables.binary_files import ArrowFile, NpzFile, ParquetFile
from fcac.tables.delimited import CsvFile
from fcac.tables.python_cells import JsonLinesFile, Workbook
from fcac.tables.read_options import ReadOptions
from fcac.tables.sources import as_source, is_database_file, open_database
from fcac.tables.table_file import TableFile

#: File name extensions and the formats they stand for.
FORMATS = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".npz": "npz",
    ".jsonl": "json",
    ".jsonl.gz": "json",
    ".ndjson": "json",
    ".xlsx": "workbook",
    ".xlsb": "workbook",
    ".xls": "workbook",
    ".ods": "workbook",
    ".sqlite": "database",
    ".sqlite3": "database",
    ".duckdb": "database",
    ".db": "database",
}


class SourceFile(NamedTuple):
    """A file, or the address of a database, and the site that it belongs to by default."""

    path: Path | str
    site: SiteName


def site_from_text(text: str) -> SiteName:
    """Parse a site's name: digits are a number, so that site 9 comes before site 10; anything else is text.

    Examples
    --------
    >>> from fcac.tables.find_tables import site_from_text
    >>> site_from_text("10"), site_from_text("007"), site_from_text("north")
    (10, '007', 'north')
    """
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) else text


def find_files(paths: Sequence[str | Path]) -> list[SourceFile]:
    """List the given table files and databases, and the table files in the given directories.

    In a directory, every file is a site, named after the file; every subdirectory is also a site, with all files in it.

    Parameters
    ----------
    paths : sequence of path-like
        Addresses of databases (``postgresql://host/name``) must be text.

    Returns
    -------
    list of SourceFile
        In the order given; within a directory, sorted by site.
    """

    found: list[SourceFile] = []
    for path in map(as_source, paths):
        if isinstance(path, str):
            found.append(SourceFile(path, site_from_text(_database_name(path))))
        elif path.is_dir():
            inside = [
                SourceFile(file, site_from_text(stem(entry)))
                for entry in path.iterdir()
                if not entry.name.startswith((".", "_"))
                for file in (_files_below(entry) if entry.is_dir() else [entry])
                if is_table(file)
            ]
            if not inside:
                raise RequestError(f"{path} contains no table: file names must end in {', '.join(FORMATS)}")
            found.extend(sorted(inside, key=lambda item: (order_key(item.site), str(item.path))))
        elif not path.exists():
            raise RequestError(f"there is no file or directory {path}")
        elif format_of(path) is None:
            raise RequestError(f"{path}: unknown kind of file; its name must end in {', '.join(FORMATS)}")
        else:
            found.append(SourceFile(path, site_from_text(stem(path))))
    if not found:
        raise RequestError("no data: give at least one file or directory")
    return found


def stem(path: Path) -> str:
    """Return the name of a file without its extension."""
    name = path.name
    if path.is_dir():
        return name
    for ending in sorted(FORMATS, key=len, reverse=True):
        if name.lower().endswith(ending):
            return name[: -len(ending)] or name
    return path.stem


def format_of(path: Path) -> str | None:
    """Return the format of a file by its extension; None if unknown."""
    endings = [ending for ending in FORMATS if path.name.lower().endswith(ending)]
    return FORMATS[max(endings, key=len)] if endings else None


def is_table(path: Path) -> bool:
    """Return whether a file in a directory is a table: many programs call their own files ``.db``, so those are not."""
    return format_of(path) is not None and path.suffix.lower() != ".db"


def _database_name(address: str) -> str:
    from fcac.tables.sources.postgresql import public_name

    return public_name(address).rpartition("/")[2] or "database"


def _files_below(directory: Path) -> list[Path]:
    return [p for p in sorted(directory.rglob("*")) if p.is_file() and not p.name.startswith((".", "_"))]


def open_table(
    source: str | Path, options: ReadOptions | None = None, *, start: int = 0, end: int | None = None
) -> TableFile:
    r"""Open a table of any known format, or in a database; only its metadata are read.

    Of a CSV file that is not compressed, only the lines between the byte offsets `start` and `end` are read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.csv")
    ...     _ = path.write_text("age,ward\n71,NA\n38,EU\n")
    ...     [batch.to_pylist() for batch, _ in open_table(path).batches(["age"], ["ward"])]
    [[{'age': 71.0, 'ward': 'NA'}, {'age': 38.0, 'ward': 'EU'}]]
    """
    path = as_source(source)
    if isinstance(path, str) or is_database_file(path):
        return open_database(path, options)
    if options is not None and options.query is not None:
        raise RequestError(f"{path} is not a database: leave out --query")
    kind = format_of(path)
    readers: dict[str, Callable[[Path], TableFile]] = {
        "csv": lambda path: CsvFile(path, start, end, options),
        "parquet": ParquetFile,
        "arrow": ArrowFile,
        "npz": NpzFile,
        "json": lambda path: JsonLinesFile(path, options),
        "workbook": lambda path: Workbook(path, options),
        "database": lambda path: open_database(path, options),
    }
    reader = readers.get(kind or "")
    if reader is None:
        raise RequestError(f"{path}: unknown kind of file; its name must end in {', '.join(FORMATS)}")
    if kind != "csv" and (start or end is not None):
        raise ValueError(f"a {kind} file cannot be read between byte offsets")
    try:
        return reader(path)
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as {kind} ({type(error).__name__}): is it complete?") from None
