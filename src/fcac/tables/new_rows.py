"""Finds the new rows in a site's files: every row is used once, in the order of file names and lines.

What counts as new:

- all rows of a file that did not exist before;
- lines added at the end of a CSV file since the last round (found by byte offset);
- rows added at the end of any other table that was rewritten with the old rows first (checked by a digest);
- rows of a database whose value in a column that only grows is above that of the last round.

Rows changed in place do not count as new. A file that has shrunk, or whose used part has changed, is an error that
names the file; nothing is used until the file is restored or its new rows are given in a new file. A deleted file is
simply no longer read. The same rows under a new file name are new rows.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fcac._typing import Floats
from fcac.exceptions import DataError, ReadWarning, RequestError
from fcac.tables.delimited import end_of_names, has_lines, refuse_guesses
from fcac.tables.find_tables import FORMATS, format_of, is_table, open_table
from fcac.tables.read_options import GAP_WORDS, ReadOptions
from fcac.tables.schema import Converted, Schema, describe_problems
from fcac.tables.sources import as_source, is_database_file, open_database
from fcac.tables.table_file import TableFile, read_rows, wanted_columns

#: What is remembered about a file: plain values that can be stored as JSON.
Mark = dict[str, Any]
Cursor = dict[str, Mark]

_UNUSED: Mark = {"rows": 0, "bytes": 0}
_CSV_ENDINGS = (".csv", ".tsv", ".txt")
_EDGE = 65_536
# What a cursor calls a database: its address may change while its rows stay.
_DATABASE = "database"


@dataclass(frozen=True)
class NewPart:
    """The new rows of one file, as the marks before and after they are used."""

    path: Path | str
    name: str
    before: Mark
    after: Mark


class Piece(NamedTuple):
    """A block of new rows of one file, with the values of the tag column, one per row, if there is one."""

    block: Floats
    tags: list[Any] | None
    file: str


class NewRowFinder:
    r"""Finds the rows of a file, a directory or a database that a cursor does not cover yet.

    Of a directory, subdirectories are searched too. Names that begin with a dot or an underscore are ignored: write a
    file under such a name and then rename it, so that it appears complete or not at all. A last line without a line
    break counts once a CSV file has not changed for `settle` seconds. The values of the column `tag` (people) are
    returned with the rows; of a database, the option `new_by` names the column that tells new rows.

    >>> import tempfile
    >>> from fcac.tables.schema import Schema
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name, "a.csv")
    >>> _ = file.write_text("x,y\n1,2\n")
    >>> finder = NewRowFinder(file, Schema(["x", "y"]))
    >>> parts = finder.find({})
    >>> cursor = finder.advance({}, parts)
    >>> _ = file.write_text("x,y\n1,2\n3,4\n")
    >>> [block.tolist() for block in finder.rows(finder.find(cursor))]
    [[[3.0, 4.0]]]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        settle: float = 2.0,
        tag: str | None = None,
        options: ReadOptions | None = None,
    ) -> None:
        self.path = as_source(path if isinstance(path, str) else Path(path))
        self.schema = schema
        self.settle = settle
        self.tag = tag
        self.options = options or ReadOptions()
        self._is_database = isinstance(self.path, str) or (self.path.is_file() and is_database_file(self.path))
        if self._is_database and self.options.new_by is None:
            raise RequestError(
                "a database needs --new-by COLUMN: a column whose values only grow, such as a serial number or the "
                "time of entry, by which the rows since the last round are found"
            )
        if not self._is_database and self.options.new_by is not None:
            raise RequestError("--new-by is for databases: in files, new lines and new files are new rows")

    def find(self, cursor: Cursor) -> list[NewPart]:
        """Return the new parts of files, in the order of file names."""
        if self._is_database:
            return self._new_keys(cursor.get(_DATABASE, _UNUSED))
        parts = []
        for path, name in self._files():
            before = cursor.get(name, _UNUSED)
            by_line = self._is_read_by_line(path, before)
            after = self._mark_lines(path, before) if by_line else self._mark_table(path, before)
            if after is not None:
                parts.append(NewPart(path, name, before, after))
        return parts

    def rows(self, parts: list[NewPart]) -> Iterator[Floats]:
        """Yield the new rows in blocks, as converted by the schema."""
        for piece in self.pieces(parts):
            yield piece.block

    def pieces(self, parts: list[NewPart]) -> Iterator[Piece]:
        """Yield the new rows in blocks, with their tags and file name."""
        for part in parts:
            if "key" in part.after:
                yield from self._rows_by_key(part)
            elif "edges" in part.after:
                yield from self._new_lines(part)
            else:
                yield from self._new_table_rows(part)

    def all_batches(self) -> Iterator[tuple[Any, list[Any] | None]]:
        """Yield all rows there are, used before or not, as Arrow batches, with their tags; no row may be dropped."""
        for part in self.find({}):
            for table, converted, tags in self._checked(self._open(part)):
                assert converted.kept is None, "a schema that drops rows cannot be used to read all of them"
                yield table, tags

    def _open(self, part: NewPart) -> TableFile:
        """Open the file, or the rows of the database, that hold a part."""
        if "key" in part.after:
            table = open_database(self.path, self.options)
            return table.between(str(self.options.new_by), part.before.get("key"), part.after["key"])
        if "edges" in part.after:
            return open_table(part.path, self.options, start=part.before["bytes"], end=part.after["bytes"])
        return open_table(part.path, self.options)

    def check_columns(self) -> None:
        """Check that every existing file has all columns that will be needed."""
        if self._is_database:
            table = open_database(self.path, self.options)
            self._require(table.path, table.schema.names)
            table.newest(str(self.options.new_by), None)
            return
        for path, _ in self._files():
            if path.stat().st_size:  # an empty file has no rows either
                # read only the header line of a CSV file: a line below it may be half written
                by_line = self._is_read_by_line(path, _UNUSED)
                end = end_of_names(path, self.options) if by_line else None
                self._require(path, open_table(path, self.options, end=end).schema.names)
                if self.options.forgiving and format_of(path) == "csv":
                    refuse_guesses(path, wanted_columns(self.schema)[0], self.options)

    def _require(self, path: Path | str, names: list[str]) -> None:
        lacking = [name for name in self.schema.columns if name not in names]
        if lacking:
            raise RequestError(f"{path}: no column {', '.join(lacking)}, which the schema needs")
        if self.tag is not None and self.tag not in names:
            raise RequestError(f"{path}: no column {self.tag}, which was named for the ledger")

    @staticmethod
    def advance(cursor: Cursor, parts: list[NewPart]) -> Cursor:
        """Return the cursor after these parts have been used."""
        return {**cursor, **{part.name: part.after for part in parts}}

    def _files(self) -> list[tuple[Path, str]]:
        assert isinstance(self.path, Path)
        if self.path.is_file():
            if format_of(self.path) is None:
                raise RequestError(f"{self.path}: unknown kind of file; its name must end in {', '.join(FORMATS)}")
            return [(self.path, self.path.name)]
        if not self.path.is_dir():
            raise RequestError(f"there is no file or directory {self.path}")
        found = []
        for path in sorted(self.path.rglob("*")):
            relative = path.relative_to(self.path)
            hidden = any(piece.startswith((".", "_")) for piece in relative.parts)
            if not hidden and path.is_file() and is_table(path):
                found.append((path, relative.as_posix()))
        return found

    def _blocks(self, file: TableFile) -> Iterator[tuple[Floats, list[Any] | None]]:
        """Yield the rows of a table as converted by the schema, with their tags."""
        for _, converted, tags in self._checked(file):
            yield converted.block, tags

    def _checked(self, file: TableFile) -> Iterator[tuple[Any, Converted, list[Any] | None]]:
        """Yield the rows of a table as read and as converted, with their tags, after checking them."""
        path = file.path
        self._require(path, file.schema.names)
        for table, converted, _ in read_rows(file, self.schema, [] if self.tag is None else [self.tag]):
            if (converted.missing or converted.unknown) and not self.options.forgiving:
                raise DataError(f"{path}: {describe_problems(converted.missing, converted.unknown)}")
            if self.tag is None:
                yield table, converted, None
                continue
            tags = table.column(table.schema.names.index(self.tag)).to_pylist()
            if converted.kept is not None:
                tags = [tag for tag, kept in zip(tags, converted.kept, strict=True) if kept]
            # A category may be called NA, but a person may not: the ledger would take all rows without an id for one
            # person's, and could not tell what the rows of each of them cost.
            nobody = GAP_WORDS if isinstance(path, Path) and format_of(path) == "csv" else {""}
            unnamed = np.array([tag is None or tag in nobody for tag in tags], dtype=bool)
            if unnamed.any() and self.options.forgiving:
                block = np.ascontiguousarray(converted.block[~unnamed])
                converted = converted._replace(block=block)
                if converted.kept is None:
                    table = table.filter(~unnamed)
                tags = [tag for tag, gone in zip(tags, unnamed, strict=True) if not gone]
            elif unnamed.any():
                raise DataError(f"{path}: a row has no value in column {self.tag}, which was named for the ledger")
            yield table, converted, tags

    # ------------------------------------------------------------ CSV: by byte offset

    def _is_read_by_line(self, path: Path, before: Mark) -> bool:
        """Return whether a file is read from byte offsets; it stays so, or not, for as long as it is used."""
        if before["bytes"]:
            return "edges" in before
        return path.suffix.lower() in _CSV_ENDINGS and has_lines(path, self.options)

    def _mark_lines(self, path: Path, before: Mark) -> Mark | None:
        """Return the mark at the end of the last complete line, or None if there is nothing new."""
        facts = path.stat()
        used = before["bytes"]
        with path.open("rb") as stream:
            if used and (facts.st_size < used or _edges(stream, used) != before["edges"]):
                raise _changed(path)
            first = max(used, end_of_names(path, self.options))
            end = _end_of_last_line(stream, first, facts.st_size)
            if end < facts.st_size and time.time() - facts.st_mtime >= self.settle:
                end = facts.st_size
            if end <= first or (end - first < _EDGE and not _read_at(stream, first, end - first).strip()):
                return None
            return {"rows": 0, "bytes": end, "edges": _edges(stream, end)}

    def _new_lines(self, part: NewPart) -> Iterator[Piece]:
        for block, tags in self._blocks(self._open(part)):
            yield Piece(block, tags, part.name)

    # ------------------------------------------------------------ other tables: by row count and digest

    def _mark_table(self, path: Path, before: Mark) -> Mark | None:
        facts = path.stat()
        if facts.st_size == before["bytes"] and facts.st_mtime_ns == before.get("stamp"):
            return None
        used, n_rows, digest = before["rows"], 0, hashlib.sha256()
        unchanged = used == 0
        for block, _ in self._blocks(open_table(path, self.options)):
            cut = min(max(used - n_rows, 0), len(block))
            digest.update(np.ascontiguousarray(block[:cut]).tobytes())
            if used and n_rows < used <= n_rows + len(block):
                unchanged = digest.hexdigest() == before["digest"]
            digest.update(np.ascontiguousarray(block[cut:]).tobytes())
            n_rows += len(block)
        if not unchanged:
            raise _changed(path)
        if n_rows == used:
            return None
        return {"rows": n_rows, "bytes": facts.st_size, "stamp": facts.st_mtime_ns, "digest": digest.hexdigest()}

    def _new_table_rows(self, part: NewPart) -> Iterator[Piece]:
        first, last, seen = part.before["rows"], part.after["rows"], 0
        for block, tags in self._blocks(self._open(part)):
            fresh = slice(max(first - seen, 0), max(last - seen, 0))
            seen += len(block)
            if len(block[fresh]):
                yield Piece(np.ascontiguousarray(block[fresh]), None if tags is None else tags[fresh], part.name)

    # ------------------------------------------------------------ databases: by a column that only grows

    def _new_keys(self, before: Mark) -> list[NewPart]:
        column = str(self.options.new_by)
        table = open_database(self.path, self.options)
        self._require(table.path, table.schema.names)
        highest, n_new, n_old = table.newest(column, before.get("key"))
        if n_old > before["rows"]:
            warnings.warn(
                f"{table.path}: {n_old - before['rows']:,} rows have appeared whose value in column {column!r} is not "
                "above that of the last round, and are not read: the column must only grow",
                ReadWarning,
                stacklevel=3,
            )
        if not n_new:
            return []
        after = {"rows": n_old + n_new, "bytes": 0, "key": highest}
        return [NewPart(table.path, _DATABASE, before, after)]

    def _rows_by_key(self, part: NewPart) -> Iterator[Piece]:
        for block, tags in self._blocks(self._open(part)):
            yield Piece(block, tags, part.name)


def _changed(path: Path) -> DataError:
    return DataError(f"{path}: rows that were used before have changed. Add new rows at the end, or in a new file")


def _end_of_last_line(stream: BinaryIO, start: int, size: int) -> int:
    position = size
    while position > start:
        step = min(_EDGE, position - start)
        found = _read_at(stream, position - step, step).rfind(b"\n")
        if found >= 0:
            return position - step + found + 1
        position -= step
    return start


def _edges(stream: BinaryIO, end: int) -> str:
    """Return a digest of the first and last bytes of the used part, which reveals a replaced file at low cost."""
    digest = hashlib.sha256(_read_at(stream, 0, min(_EDGE, end)))
    digest.update(_read_at(stream, max(0, end - _EDGE), min(_EDGE, end)))
    stream.seek(0)
    return digest.hexdigest()


def _read_at(stream: BinaryIO, start: int, length: int) -> bytes:
    stream.seek(start)
    return stream.read(length)
