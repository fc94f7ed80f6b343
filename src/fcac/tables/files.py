"""Find table files, and open each with the reader of its format.

:func:`open_table` is the one way from a place where rows lie to Arrow batches, for the commands and for the sites of a
federation alike: what a cell means must not depend on who reads it.
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

#: Name endings of the formats that can be read.
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
    """A file and the site that it belongs to unless something else says so."""

    path: Path
    site: SiteName


def site_from_text(text: str) -> SiteName:
    """Read a site's name: digits are a number, so that site 9 comes before site 10; all else is text.

    Examples
    --------
    >>> from fcac.tables.files import site_from_text
    >>> site_from_text("10"), site_from_text("007"), site_from_text("north")
    (10, '007', 'north')
    """
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) else text


def find_files(paths: Sequence[str | Path]) -> list[SourceFile]:
    """List the table files behind files and directories.

    In a directory every file is a site, named by the file; every sub-directory is a site too, with all files below it.

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
                raise RequestError(f"{path} holds no table: files must end in {', '.join(FORMATS)}")
            found.extend(sorted(inside, key=lambda item: (order_key(item.site), str(item.path))))
        elif not path.exists():
            raise RequestError(f"there is no file or directory {path}")
        elif format_of(path) is None:
            raise RequestError(f"{path}: unknown kind of file; it must end in {', '.join(FORMATS)}")
        else:
            found.append(SourceFile(path, site_from_text(stem(path))))
    if not found:
        raise RequestError("no data: name at least one file or directory")
    return found


def stem(path: Path) -> str:
    """Name of a file without its ending."""
    name = path.name
    if path.is_dir():
        return name
    for ending in sorted(FORMATS, key=len, reverse=True):
        if name.lower().endswith(ending):
            return name[: -len(ending)] or name
    return path.stem


def format_of(path: Path) -> str | None:
    """Kind of a file by its ending; None if unknown."""
    endings = [ending for ending in FORMATS if path.name.lower().endswith(ending)]
    return FORMATS[max(endings, key=len)] if endings else None


def _files_below(directory: Path) -> list[Path]:
    return [p for p in sorted(directory.rglob("*")) if p.is_file() and not p.name.startswith((".", "_"))]


def open_table(source: str | Path, *, start: int = 0, end: int | None = None) -> TableFile:
    """Open a table of any known format; only its description is read.

    Parameters
    ----------
    source : path-like
    start, end : int, optional
        For a CSV file that grows, and is not compressed: read the lines between these bytes only.

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
        raise RequestError(f"{path}: unknown kind of file; it must end in {', '.join(FORMATS)}")
    if kind != "csv" and (start or end is not None):
        raise ValueError(f"a {kind} file cannot be read between bytes")
    try:
        return reader(path)
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as {kind} ({type(error).__name__}): is it complete?") from None
