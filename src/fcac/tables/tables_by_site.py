"""Several files read as one table of numbers with sites."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fcac._sites import SiteName, plain_site
from fcac._typing import Floats
from fcac.exceptions import DataError, RequestError
from fcac.tables.find_tables import SourceFile, find_files, open_table, site_from_text, stem
from fcac.tables.read_options import ReadOptions
from fcac.tables.schema import Column, Schema, describe_problems, is_numeric, kind_in_words
from fcac.tables.table_file import TableFile, read_rows, wanted_columns

#: Called with the number of rows read so far and the fraction of the data read (0 to 1).
Progress = Callable[[int, float], None]


class Batch(NamedTuple):
    """Some rows of one file.

    Attributes
    ----------
    path : Path or str
    block : ndarray of shape (kept rows, features)
    kept : ndarray of bool, or None
        Which of the rows read are in the block; None means all. The others had missing values and were dropped, as the
        schema says.
    sites : list of (site, row numbers within the block, or None for all)
    table : pyarrow.RecordBatch
        The rows as read, with the additional columns requested.
    """

    path: Path | str
    block: Floats
    kept: NDArray[np.bool_] | None
    sites: list[tuple[SiteName, NDArray[np.intp] | None]]
    table: pa.RecordBatch


def open_tables(
    paths: Sequence[str | Path],
    schema: Schema | None = None,
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    site_column: str | None = None,
    site: SiteName | None = None,
    record_id_column: str | None = None,
    keep: Sequence[str] = (),
    options: ReadOptions | None = None,
) -> Tables:
    """Open files as one table; only their metadata are read at this point.

    Parameters
    ----------
    paths : sequence of path-like
        Files (CSV, Parquet, Feather, NPZ, JSON lines, workbooks, SQLite, DuckDB), directories of them, or addresses of
        databases (``postgresql://host/name``). Each is a site of its own, named after the file or the database, unless
        `site_column` or `site` says otherwise.
    schema : Schema, optional
        The columns used, their order, their scaling and how missing values are handled. Without a schema, all columns
        are used as they are, in the order of the first file; they must be numeric, and missing values are an error.
    columns : sequence of str, optional
        Instead of a schema: the columns to use, in this order; others are ignored.
    drop : sequence of str
        Columns to leave out.
    site_column : str, optional
        Column that names the site of each row.
    site : str or int, optional
        All rows belong to this site.
    record_id_column : str, optional
        Column of record ids, which is not a feature; see :attr:`Tables.record_ids`.
    keep : sequence of str
        Additional columns to pass through in :meth:`Tables.batches`.
    options : ReadOptions, optional
        How to read the tables: decimal sign, encoding, the query to a database.

    Returns
    -------
    Tables

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fcac.tables import open_tables
    >>> folder = tempfile.TemporaryDirectory()
    >>> for site, rows in {"north": "1,2\\n3,4\\n", "south": "5,6\\n"}.items():
    ...     _ = Path(folder.name, site + ".csv").write_text("a,b\\n" + rows)
    >>> tables = open_tables([folder.name])
    >>> tables.feature_names, [(site, block.tolist()) for site, block in tables.pieces()]
    (['a', 'b'], [('north', [[1.0, 2.0], [3.0, 4.0]]), ('south', [[5.0, 6.0]])])
    >>> folder.cleanup()
    """
    if site_column is not None and site is not None:
        raise RequestError("give only one of: a site column, one site for all rows")
    if schema is not None and (columns is not None or drop):
        raise RequestError("a schema says which columns are used: leave out the list of columns")
    sources = find_files(paths)
    files = [open_table(source.path, options) for source in sources]
    apart = [name for name in (site_column, record_id_column, *keep) if name is not None]
    for file in files:
        if schema is None and columns is None:
            file.check_names()
        lacking = [name for name in [*apart, *drop] if name not in file.schema.names]
        if lacking:
            known = ", ".join(file.schema.names[:12]) + (", ..." if len(file.schema.names) > 12 else "")
            raise RequestError(f"{file.path} has no column {lacking[0]!r}; it has {known}")
    if schema is None:
        schema = _plain_schema(files, columns, {*apart, *drop})
    _check_columns(files, schema)
    if site_column is None and site is None:
        _check_names(sources)
    sites = [source.site if site is None else plain_site(site) for source in sources]
    return Tables(files, sites, schema, site_column, record_id_column, keep)


class Tables:
    """Files that together form one table; they can be read repeatedly, in order.

    Created by :func:`open_tables`.

    Attributes
    ----------
    schema : Schema
        The schema given, or one that uses the columns as they are.
    n_rows : int or None
        Number of rows, if it is known without reading the files.
    n_read, n_dropped : int
        Rows read, and rows left out for missing values, in the last pass.
    other : Counter
        For each category: how many values of the last pass are no level of the schema and count as "other".
    dropped_for : Counter
        For each column whose gaps make the schema drop a row: how many rows had such a gap, in the last pass.
    record_ids : dict of site to list
        After a pass: the ids of the rows of each site, in the order of its pieces.
    """

    def __init__(
        self,
        files: list[TableFile],
        sites: list[SiteName],
        schema: Schema,
        site_column: str | None,
        record_id_column: str | None,
        keep: Sequence[str],
    ) -> None:
        self.files = files
        self.schema = schema
        self._sites = sites
        self._site_column = site_column
        self._record_id_column = record_id_column
        self._keep = list(keep)
        counts = [file.n_rows for file in files]
        self.n_rows = None if None in counts else sum(count for count in counts if count is not None)
        self.n_read = 0
        self.n_dropped = 0
        self.dropped_for: Counter[str] = Counter()
        self.other: Counter[str] = Counter()
        self._dropping = {field.name for field in schema.used if field.missing == "drop"}
        self.record_ids: dict[SiteName, list[Any]] = {}

    @property
    def n_features(self) -> int:
        """Number of features of the blocks."""
        return self.schema.n_features

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in order."""
        return self.schema.feature_names

    @property
    def has_sites(self) -> bool:
        """Whether the rows can belong to more than one site."""
        return self._site_column is not None or len(set(self._sites)) > 1

    def pieces(self, progress: Progress | None = None) -> Iterator[tuple[SiteName, Floats]]:
        """Yield (site, rows) in the order of the files.

        Parameters
        ----------
        progress : callable, optional
            Called with the number of rows read so far and the fraction of the data.

        Raises
        ------
        DataError
            At the end of the pass if any values are missing that must not be, with all columns and counts.
        """
        for batch in self.batches(progress):
            for site, rows in batch.sites:
                if self._record_id_column is not None:
                    ids = _kept_values(batch, self._record_id_column)
                    mine = ids if rows is None else [ids[i] for i in rows]
                    self.record_ids.setdefault(site, []).extend(mine)
                yield site, batch.block if rows is None else np.ascontiguousarray(batch.block[rows])

    def batches(self, progress: Progress | None = None) -> Iterator[Batch]:
        """Yield the rows batch by batch, with the additional columns requested."""
        self.n_read, self.n_dropped, self.record_ids = 0, 0, {}
        self.dropped_for, self.other = Counter(), Counter()
        troubles = _Troubles()
        for number, (file, site) in enumerate(zip(self.files, self._sites, strict=True)):
            beside = [name for name in (self._site_column, self._record_id_column, *self._keep) if name is not None]
            for table, converted, share in read_rows(file, self.schema, beside):
                troubles.note(file.path, table, converted.missing, converted.unknown, self._site_column)
                self.n_read += table.num_rows
                self.n_dropped += table.num_rows - len(converted.block)
                self.other.update(converted.other)
                self.dropped_for.update({name: n for name, n in converted.gaps.items() if name in self._dropping})
                if progress is not None:
                    progress(self.n_read, self._share(number, share))
                # after the first problem, rows are only counted, so that the error can report all problems
                if not troubles.found:
                    sites = self._sites_of(table, converted.kept, site)
                    yield Batch(file.path, converted.block, converted.kept, sites, table)
        troubles.raise_if_any()
        if self.n_read == 0:
            raise DataError(f"no rows in {', '.join(str(file.path) for file in self.files[:5])}")
        if self.n_dropped == self.n_read:
            raise DataError(f"each of the {self.n_read:,} rows has a missing value, and the schema drops such rows")

    def _share(self, number: int, share: float) -> float:
        sizes = [file.weight for file in self.files]
        return (sum(sizes[:number]) + share * sizes[number]) / sum(sizes)

    def _sites_of(
        self, table: pa.RecordBatch, kept: Any, site: SiteName
    ) -> list[tuple[SiteName, NDArray[np.intp] | None]]:
        """Return the rows of each site in a block."""
        if self._site_column is None:
            return [(site, None)]
        names, codes = _encoded(table.column(table.schema.names.index(self._site_column)))
        sites = [_site(name, self._site_column) for name in names]
        return [(sites[code], rows) for code, rows in _grouped(codes if kept is None else codes[kept])]


class _Troubles:
    """Problems by file and column, collected until the end of the pass."""

    def __init__(self) -> None:
        self._missing: dict[Path | str, Counter[str]] = {}
        self._unknown: dict[Path | str, Counter[str]] = {}
        self._siteless: Counter[Path | str] = Counter()
        self._rows: Counter[Path | str] = Counter()
        self._site_column: str | None = None

    @property
    def found(self) -> bool:
        return bool(self._missing or self._unknown or self._siteless)

    def note(
        self,
        path: Path | str,
        table: pa.RecordBatch,
        missing: dict[str, int],
        unknown: dict[str, int],
        site_column: str | None,
    ) -> None:
        self._rows[path] += table.num_rows
        if missing:
            self._missing.setdefault(path, Counter()).update(missing)
        if unknown:
            self._unknown.setdefault(path, Counter()).update(unknown)
        if site_column is not None:
            self._site_column = site_column
            empty = table.column(table.schema.names.index(site_column)).null_count
            if empty:
                self._siteless[path] += empty

    def raise_if_any(self) -> None:
        for path, count in self._siteless.items():
            raise DataError(f"{path}: {count:,} rows have no site in column {self._site_column!r}: every row needs one")
        paths = [*self._missing, *(path for path in self._unknown if path not in self._missing)]
        if not paths:
            return
        first = paths[0]
        words = describe_problems(
            dict(self._missing.get(first, {})), dict(self._unknown.get(first, {})), self._rows[first]
        )
        others = f" (and in {len(paths) - 1} more files)" if len(paths) > 1 else ""
        raise DataError(f"{first}{others}: {words}")


def _plain_schema(files: list[TableFile], columns: Sequence[str] | None, apart: set[str]) -> Schema:
    """Return a schema of columns as they are: those requested, or all of the first file, which must be numeric."""
    if columns is not None:
        return Schema(list(columns))
    first = files[0]
    used = [
        field
        for field in first.schema
        if field.name not in apart
        and field.name not in first.not_features
        and not re.fullmatch(r"__index_level_\d+__", field.name)
    ]
    wrong = [field for field in used if not is_numeric(field.type)]
    if wrong:
        what = ", ".join(f"{field.name} ({kind_in_words(field.type)})" for field in wrong[:8])
        drops = " ".join(f"--drop {field.name}" for field in wrong)  # all: the advice is to lead through
        if len(wrong) > 1:
            said = f"columns {what} are not numeric: leave them out ({drops}), name one as the site column"
        else:
            said = f"column {what} is not numeric: leave it out ({drops}), name it as the site column"
        raise DataError(f"{first.path}: {said}, or describe the columns in a schema (fcac schema)")
    if not used:
        raise DataError(f"{first.path} has no column left to cluster by")
    for file in files[1:]:
        others = set(file.schema.names) - apart - file.not_features
        extra = sorted(name for name in others - {f.name for f in used} if not name.startswith("__index_level_"))
        if extra:
            raise DataError(
                f"{file.path} has columns that {first.path} does not have: {', '.join(extra[:8])}; all files need the "
                "same columns: leave these out, or say in a schema which are used"
            )
    return Schema([Column(field.name) for field in used])


def _check_columns(files: list[TableFile], schema: Schema) -> None:
    for file in files:
        lacking = [name for name in schema.columns if name not in file.schema.names]
        if lacking:
            file.check_names()  # if names make no sense, that is the more likely reason
            more = f" and {len(lacking) - 8} more" if len(lacking) > 8 else ""
            raise DataError(
                f"{file.path} has no column {', '.join(lacking[:8])}{more}: all tables need the same columns"
            )
        file.check_columns(*wanted_columns(schema))


def _check_names(sources: list[SourceFile]) -> None:
    """Check that two files belong to one site only if they are in a directory named after it."""
    seen: dict[SiteName, Path | str] = {}
    for source in sources:
        if isinstance(source.path, Path) and site_from_text(stem(source.path)) != source.site:
            continue
        other = seen.setdefault(source.site, source.path)
        if other != source.path:
            raise RequestError(
                f"{other} and {source.path} would both be site {source.site}: rename one, or name a site column"
            )


def _site(name: Any, column: str | None) -> SiteName:
    try:
        return site_from_text(name) if isinstance(name, str) else plain_site(name)
    except ValueError:
        raise DataError(f"column {column!r} must name sites by text or whole numbers") from None


def _encoded(column: Any) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct values in order of appearance, and the position of each row's value among them."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), np.asarray(codes, np.int64)


def _grouped(codes: Any) -> list[tuple[int, NDArray[np.intp]]]:
    """Return the row numbers of each code, in order."""
    order = np.argsort(codes, kind="stable")
    values, starts = np.unique(codes[order], return_index=True)
    return list(zip(values.tolist(), np.split(order, starts[1:]), strict=True))


def _kept_values(batch: Batch, name: str) -> list[Any]:
    values = batch.table.column(batch.table.schema.names.index(name)).to_pylist()
    return values if batch.kept is None else [value for value, keep in zip(values, batch.kept, strict=True) if keep]
