"""Fit, update and predict as Spark jobs, and `NodeRelease` there: executors add up, the driver adds noise to the sum,
once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fcac._sites import SiteName
from fcac._typing import Integers
from fcac.exceptions import DataError
from fcac.model import partitions
from fcac.model.fcac import FCAC
from fcac.model.partition_totals import GridPlan, check_release, flat_totals, play_release, weights_of, whole_totals
from fcac.model.partitions import Condensed, Plan
from fcac.model.storage import from_bytes, to_bytes
from fcac.privacy.cell_release import Request
from fcac.privacy.cell_statistics import Totals
from fcac.spark.session import Counters, Progress, check_ready, one_line, tell, watched
from fcac.tables.schema import Column, Schema

# States that one task merges. 50 states of 4,000 nodes and 20 features are about 150 MB.
_MERGED_AT_ONCE = 50

_CONDENSED = "site string, number long, state binary, n_rows long, n_dropped long, n_nodes long"
_LABELS = ("label", "confidence", "distance", "novel")


def fit(
    frame: Any,
    schema: Schema | None = None,
    site_column: str | None = None,
    partition_by: str | Sequence[str] | None = None,
    *,
    order_by: str | Sequence[str] | None = None,
    weight_column: str | None = None,
    server: str = "communities",
    n_clusters: int | None = None,
    max_nodes: int | None = None,
    forgetting: str = "none",
    scale: str = "auto",
    false_split_rate: float = 0.1,
    privacy: Any = None,
    record_id: str | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> FCAC:
    """Learn clusters from a Spark data frame.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
    schema : Schema, optional
        How columns become numbers. Without one, all columns but that of the sites are used as they are.
    site_column : str, optional
        Column that names the site of each row. All rows of a site are then condensed by one task, in an order that does
        not depend on how the frame is partitioned, so the model does not depend on it either.
    partition_by : str or sequence of str, optional
        Without sites: columns by which rows are dealt to partitions first. By default partitions stay as they are.
    order_by : str or sequence of str, optional
        With sites: columns by which the rows of a site are ordered. With an order in which no two rows are equal, the
        model is bit for bit that of ``FCAC().fit(rows in this order, groups=site_column)``. By default rows are ordered
        by all columns in turn.
    weight_column : str, optional
        Column that says how many rows each row stands for, as ``sample_weight`` of :meth:`fcac.FCAC.fit`. Not for a
        release, which counts every row once.
    server, n_clusters, max_nodes, forgetting, scale, false_split_rate, random_state
        As in `FCAC`.
    privacy : NodeRelease, optional
        All rows are released as those of one owner: executors add up totals, and noise is added to their sum, once.
        The ledger is charged once. There are no sites then.
    record_id : str, optional
        With `NodeRelease`: column that names the person of each row. A person's rows weigh as much as one row, in
        however many partitions they are; a ledger adds up per person, for which the driver sees every id once.
    progress : callable, optional
        Called about twice a second with a :class:`~fcac.spark.session.Seen`: stages, tasks, rows and nodes so far. In a
        terminal a bar is shown without it.

    Returns
    -------
    FCAC
    """
    model = FCAC(
        server=server, privacy=privacy, n_clusters=n_clusters, max_nodes=max_nodes, forgetting=forgetting,
        scale=scale, false_split_rate=false_split_rate, random_state=random_state,
    )  # fmt: skip
    model._validate_params()
    beside = [name for name in (site_column, record_id, weight_column) if name is not None]
    chosen = schema if schema is not None else _plain_schema(frame, beside)
    return _round(
        model, frame, chosen, site_column, _Dealt(partition_by, order_by, weight_column), record_id, progress,
        keep_schema=schema is not None,
    )  # fmt: skip


def update(
    model: FCAC,
    frame: Any,
    partition_by: str | Sequence[str] | None = None,
    *,
    order_by: str | Sequence[str] | None = None,
    weight_column: str | None = None,
    record_id: str | None = None,
    progress: Progress | None = None,
) -> FCAC:
    """Play the next round of a model with the rows of a Spark data frame; nothing learned is forgotten.

    Parameters
    ----------
    model : FCAC
        From :func:`fit`, or any model of one process whose sites a column names.
    frame : pyspark.sql.DataFrame
        With the column of sites, if the model has sites.
    partition_by, order_by, weight_column, record_id, progress
        As in :func:`fit`.

    Returns
    -------
    FCAC
        The same model.
    """
    if not hasattr(model, "server_"):
        raise ValueError("model: it is not fitted yet; use fcac.spark.fit for the first round")
    column = model._site_column
    if column is None and set(model.sites_) != {partitions.WHOLE}:
        raise ValueError("model: its sites were not named by a column, so that rows cannot be dealt to them")
    return _round(
        model, frame, _schema_of(model), column, _Dealt(partition_by, order_by, weight_column),
        record_id, progress,
        keep_schema=True,
    )  # fmt: skip


def predict(model: FCAC, frame: Any, alpha: float | None = None) -> Any:
    """Label the rows of a Spark data frame.

    Parameters
    ----------
    model : FCAC
    frame : pyspark.sql.DataFrame
    alpha : float, optional
        Rate of false alarms for ``novel``; see :meth:`fcac.FCAC.is_novel`.

    Returns
    -------
    pyspark.sql.DataFrame
        The frame with the columns label, confidence, distance and novel. Nothing is computed until it is used. Rows
        that the schema drops for their gaps have no label.
    """
    check_ready()
    from pyspark.sql.types import BooleanType, DoubleType, LongType, StructField, StructType

    clash = [name for name in _LABELS if name in frame.columns]
    if clash:
        raise ValueError(f"frame: it has a column {clash[0]!r} already; rename it before predicting")
    schema = _schema_of(model)
    _check_columns(frame, schema)
    types = (LongType(), DoubleType(), DoubleType(), BooleanType())
    added = [StructField(name, kind, True) for name, kind in zip(_LABELS, types, strict=True)]
    stored, text = to_bytes(model), schema.to_toml()

    def label(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known, columns = loaded(stored), Schema.from_toml(text)
        with tell():
            for batch in batches:
                found = partitions.label(known, columns, batch, alpha)
                yield pa.RecordBatch.from_arrays([*batch.columns, *found], names=[*batch.schema.names, *_LABELS])

    return frame.mapInArrow(label, StructType([*frame.schema.fields, *added]))


@lru_cache(maxsize=2)
def loaded(stored: bytes) -> FCAC:
    """Return a model from its bytes; a worker labels many partitions with the same one."""
    model: FCAC = from_bytes(stored)
    return model


# ---------------------------------------------------------------- one round


class _Dealt(NamedTuple):
    """How rows are dealt to tasks, and what each counts."""

    partition_by: str | Sequence[str] | None
    order_by: str | Sequence[str] | None
    weight_column: str | None


def _round(
    model: FCAC,
    frame: Any,
    schema: Schema,
    site_column: str | None,
    dealt: _Dealt,
    record_id: str | None,
    progress: Progress | None,
    *,
    keep_schema: bool,
) -> FCAC:
    check_ready()
    partition_by, order_by, weight_column = dealt
    _check_columns(frame, schema, [*_listed(site_column), *_listed(record_id), *_listed(weight_column)])
    if site_column is not None and partition_by is not None:
        raise ValueError("partition_by: with site_column the rows of a site go together; leave one of the two out")
    if site_column is None and order_by is not None:
        raise ValueError("order_by: it orders the rows of a site; give site_column too, or leave it out")
    if model.privacy is None and record_id is not None:
        raise ValueError("record_id is for a release: give privacy=NodeRelease(...), or leave it out")
    plan = partitions.plan_for(model, schema, site_column, weight_column)
    beside = [site_column, record_id, weight_column, *_listed(partition_by), *_listed(order_by)]
    used = frame.select(*dict.fromkeys([*schema.columns, *filter(None, beside)]))
    with watched(frame.sparkSession, progress) as counted, one_line():
        if model.privacy is not None:
            return _release(model, plan, used, schema, record_id, keep_schema=keep_schema)
        if site_column is None:
            found = _condense_partitions(used, plan, partition_by, counted)
        else:
            before, order = partitions.states_of(model, plan), _listed(order_by) or schema.columns
            found = _condense_sites(used, plan, before, order, counted)
    return partitions.play(model, plan, found, schema, keep_schema=keep_schema)


def _release(model: FCAC, plan: Plan, frame: Any, schema: Schema, record_id: str | None, *, keep_schema: bool) -> FCAC:
    """Release the rows of all partitions as one sum."""
    mechanism = check_release(model, schema, plan.site_column)
    grid = GridPlan(schema.to_toml(), mechanism.bounds, record_id)
    batch = BatchOnSpark(frame, grid, named=mechanism.ledger is not None)
    try:
        return play_release(model, plan, batch, schema, keep_schema=keep_schema)
    finally:
        batch.close()


def _condense_sites(
    frame: Any, plan: Plan, before: Mapping[SiteName, bytes], order_by: Sequence[str], counted: Counters | None
) -> list[Condensed]:
    """One task condenses a site; the driver gets one state for each."""
    ordered = frame.repartition(plan.site_column).sortWithinPartitions(plan.site_column, *order_by)
    return _collected(ordered.mapInArrow(_condenser(plan, before, counted), _CONDENSED))


def _condense_partitions(
    frame: Any, plan: Plan, partition_by: str | Sequence[str] | None, counted: Counters | None
) -> list[Condensed]:
    """Every partition is condensed, and states are merged in a tree; the driver gets one."""
    from pyspark.sql import functions as sql

    dealt = frame if partition_by is None else frame.repartition(*_listed(partition_by))
    states = dealt.mapInArrow(_condenser(plan, {}, counted), _CONDENSED)
    number = _n_partitions(dealt)
    width = _MERGED_AT_ONCE
    while number > 1:
        states = states.groupBy(sql.expr(f"number div {width}")).applyInArrow(_merger(width), _CONDENSED)
        number = -(-number // width)
    return _collected(states)


def _collected(states: Any) -> list[Condensed]:
    return [
        Condensed(json.loads(row.site), bytes(row.state), row.n_rows, row.n_dropped, row.n_nodes)
        for row in states.collect()
    ]


def _condenser(
    plan: Plan, before: Mapping[SiteName, bytes], counted: Counters | None
) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        with tell():
            for found in partitions.condense(plan, batches, before):
                if counted is not None:
                    counted.rows.add(found.n_rows)
                    counted.nodes.add(found.n_nodes)
                yield _row(found, number)

    return work


def _merger(width: int) -> Callable[[pa.Table], pa.Table]:
    def merged(table: pa.Table) -> pa.Table:
        """Merge neighbouring states into one of the next level, in their order and not in that of their arrival."""
        table = table.sort_by("number")
        with tell():
            state = partitions.merge(table.column("state").to_pylist())
        sums = (sum(table.column(name).to_pylist()) for name in ("n_rows", "n_dropped", "n_nodes"))
        site = json.loads(table.column("site")[0].as_py())
        number = table.column("number")[0].as_py() // width
        return pa.Table.from_batches([_row(Condensed(site, state, *sums), number)])

    return merged


def _row(found: Condensed, number: int) -> pa.RecordBatch:
    values = (json.dumps(found.site), number, found.state, found.n_rows, found.n_dropped, found.n_nodes)
    kinds = (pa.string(), pa.int64(), pa.binary(), pa.int64(), pa.int64(), pa.int64())
    names = ("site", "number", "state", "n_rows", "n_dropped", "n_nodes")
    arrays = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _n_partitions(frame: Any) -> int:
    """Return the number of partitions; Spark Connect does not tell it, so there the tree is as high as it may be."""
    try:
        return int(frame.rdd.getNumPartitions())
    except Exception:
        return _MERGED_AT_ONCE**3


# ---------------------------------------------------------------- columns


def _plain_schema(frame: Any, beside: Sequence[str]) -> Schema:
    from pyspark.sql.types import BooleanType, NumericType

    fields = [field for field in frame.schema.fields if field.name not in beside]
    wrong = [field.name for field in fields if not isinstance(field.dataType, NumericType | BooleanType)]
    if wrong:
        raise DataError(
            f"columns {', '.join(wrong[:8])} are not numbers: select the columns to cluster by, or say in a schema how "
            "they become numbers (fcac schema)"
        )
    if not fields:
        raise DataError("the frame has no column left to cluster by")
    return Schema([Column(field.name) for field in fields])


def _schema_of(model: FCAC) -> Schema:
    if model.schema_ is not None:
        return model.schema_
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise ValueError("model: it was fitted without names of columns, so that a frame's columns cannot be matched")
    return Schema([str(name) for name in names])


def _check_columns(frame: Any, schema: Schema, beside: Sequence[str] = ()) -> None:
    lacking = [name for name in [*schema.columns, *beside] if name not in frame.columns]
    if lacking:
        raise DataError(f"the frame has no column {', '.join(lacking[:8])}")


def _listed(names: str | Sequence[str] | None) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else list(names)


_GRIDDED = "grid binary, id string, person string"
_TOTALS = "place long, value long"


class BatchOnSpark:
    """The rows of one round in a Spark data frame, for :meth:`fcac.privacy.NodeRelease.release_elsewhere`.

    Without ids the frame is read once in every step of the release. With ids two passes come first: one puts rows on
    the grid, one counts the rows of every person, in whatever partitions they are; the result stays with the executors
    until :meth:`close`. `named` says whether the driver has to know the ids, for a ledger that adds up per person.
    """

    def __init__(self, frame: Any, plan: GridPlan, *, named: bool) -> None:
        self._frame, self._plan, self._named = frame, plan, named
        self._weighted: Any = None
        self._left_out: frozenset[str] = frozenset()
        if plan.id_column is not None:
            self._weighted = _weighted(frame, plan).persist()

    def ids(self) -> list[str] | None:
        """Return every id once, if a ledger needs them; an empty list if only weights depend on them."""
        if self._weighted is None:
            return None
        if not self._named:
            self._weighted.count()  # so that rows which cannot be read are found before anything is drawn
            return []
        return [row.id for row in self._weighted.select("id").distinct().toLocalIterator()]

    def leave_out(self, people: set[str]) -> None:
        """Take no account of the rows of these people."""
        self._left_out = frozenset(people)

    def totals(self, request: Request) -> Totals:
        """Return the totals of all rows. Spark adds up exactly, and counts a task that runs twice once."""
        from pyspark.sql import functions as sql

        rows = self._frame if self._weighted is None else self._weighted
        parts = rows.mapInArrow(self._adder(request), _TOTALS)
        # a sum over very many rows may need more than 64 bits
        wide = sql.sum(sql.col("value").cast("decimal(38,0)"))
        found = parts.groupBy("place").agg(wide.alias("value")).collect()
        return whole_totals(((int(row.place), int(row.value)) for row in found), request)

    def close(self) -> None:
        """Let executors drop what they kept for this round."""
        if self._weighted is not None:
            self._weighted.unpersist()

    def _adder(self, request: Request) -> Any:
        plan, left_out = self._plan, self._left_out
        n_features = request.codebook.shape[1]

        def blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Integers, Integers | None]]:
            for batch in batches:
                if plan.id_column is None:
                    yield plan.gridded(batch).rows, None
                    continue
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                rows = np.frombuffer(b"".join(columns["grid"].to_pylist()), np.int64).reshape(-1, n_features)
                weights = weights_of(columns["turn"].to_numpy() - 1, columns["rows_of_person"].to_numpy())
                if left_out:
                    kept = np.array([person not in left_out for person in columns["person"].to_pylist()], bool)
                    rows, weights = rows[kept], weights[kept]
                yield rows, weights

        def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with tell():
                total = flat_totals(blocks(batches), request)
            yield pa.RecordBatch.from_pydict({"place": np.arange(len(total)), "value": total})

        return add


def _weighted(frame: Any, plan: GridPlan) -> Any:
    """Return the rows on the grid, each with its person, which row of the person it is, and of how many."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    def put(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tell():
            for batch in batches:
                found = plan.gridded(batch)
                grid = pa.array([row.tobytes() for row in found.rows], pa.binary())
                yield pa.RecordBatch.from_arrays(
                    [grid, pa.array(found.ids, pa.string()), pa.array(found.people, pa.string())],
                    names=["grid", "id", "person"],
                )

    own = Window.partitionBy("person")
    return (
        frame.mapInArrow(put, _GRIDDED)
        .withColumn("turn", sql.row_number().over(own.orderBy("grid")))
        .withColumn("rows_of_person", sql.count(sql.lit(1)).over(own))
    )
