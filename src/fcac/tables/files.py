"""Finds table files and opens each with the reader for its format.

:func:`open_table` is the only way from a file to Arrow batches, for the commands and for the sites of a federation
alike: what a cell means must not depend on who reads it.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from fcac._sites import SiteName, order_key
from fcac.exceptions import DataError, RequestError
from fcac.tables.delimited import CsvFile
from fcac.tables.readers import ArrowFile, NpzFile, ParquetFile, TableFile

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
}


class SourceFile(NamedTuple):
    """A file and the site that it belongs to by default."""

    path: Path
    site: SiteName


def site_from_text(text: str) -> SiteName:
    """Parse a site's name: digits are a number, so that site 9 comes before site 10; anything else is text.

    Examples
    --------
    >>> from fcac.tables.files import site_from_text
    >>> site_from_text("10"), site_from_text("007"), site_from_text("north")
    (10, '007', 'north')
    """
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) else text


def find_files(paths: Sequence[str | Path]) -> list[SourceFile]:
    """List the given table files and those in the given directories.

    In a directory, every file is a site, named after the file; every subdirectory is also a site, with all files in it.

    Parameters
    ----------
    paths : sequence of path-like

    Returns
    -------
    list of SourceFile
        In the order given; within a directory, sorted by site.
    """

    found: list[SourceFile] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = [
                SourceFile(file, site_from_text(stem(entry)))
                for entry in path.iterdir()
                if not entry.name.startswith((".", "_"))
                for file in (_files_below(entry) if entry.is_dir() else [entry])
                if format_of(file) is not None
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


def _files_below(directory: Path) -> list[Path]:
    return [p for p in sorted(directory.rglob("*")) if p.is_file() and not p.name.startswith((".", "_"))]


def open_table(source: str | Path, *, start: int = 0, end: int | None = None) -> TableFile:
    """Open a table of any known format; only its metadata are read.

    Parameters
    ----------
    source : path-like
    start, end : int, optional
        For a CSV file that is not compressed: read only the lines between these byte offsets.

    Returns
    -------
    TableFile

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fcac.tables.files import open_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.csv")
    ...     _ = path.write_text("age,ward\\n71,NA\\n38,EU\\n")
    ...     [batch.to_pylist() for batch, _ in open_table(path).batches(["age"], ["ward"])]
    [[{'age': 71.0, 'ward': 'NA'}, {'age': 38.0, 'ward': 'EU'}]]
    """
    path = Path(source)
    kind = format_of(path)
    readers: dict[str, Callable[[Path], TableFile]] = {
        "csv": lambda path: CsvFile(path, start, end),
        "parquet": ParquetFile,
        "arrow": ArrowFile,
        "npz": NpzFile,
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
    except (pa.ArrowException, OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as {kind} ({type(error).__name__}): is it complete?") from None
