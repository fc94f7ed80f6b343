"""Fit, update and predict as Spark jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from fcac._sites import SiteName
from fcac.estimators import partitions
from fcac.estimators.fcac import FCAC
from fcac.estimators.models import from_bytes, to_bytes
from fcac.estimators.partitions import Condensed, Plan
from fcac.exceptions import DataError
from fcac.spark.session import check_ready, one_line, tell, watched
from fcac.tables.schema import Column, Schema

#: Called with the number of finished tasks and of all tasks known so far.
Progress = Callable[[int, int], None]

# States that one task merges. 50 states of 4,000 nodes and 20 features are about 150 MB.
_MERGED_AT_ONCE = 50

_CONDENSED = "site string, bucket long, state binary, n_rows long, n_dropped long"
_LABELS = ("label", "confidence", "distance", "novel")


def fit(
    frame: Any,
    schema: Schema | None = None,
    site_column: str | None = None,
    partition_by: str | Sequence[str] | None = None,
    *,
    order_by: str | Sequence[str] | None = None,
    server: str = "communities",
    n_clusters: int | None = None,
    max_nodes: int | None = None,
    forgetting: str = "none",
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
    server, n_clusters, max_nodes, forgetting, random_state
        As in `FCAC`.
    progress : callable, optional
        Called with the number of finished tasks and of all tasks known so far. In a terminal a bar is shown without it.

    Returns
    -------
    FCAC
    """
    model = FCAC(
        server=server, n_clusters=n_clusters, max_nodes=max_nodes, forgetting=forgetting, random_state=random_state
    )
    model._validate_params()
    chosen = schema if schema is not None else _plain_schema(frame, site_column)
    return _round(model, frame, chosen, site_column, partition_by, order_by, progress, keep_schema=schema is not None)


def update(
    model: FCAC,
    frame: Any,
    partition_by: str | Sequence[str] | None = None,
    *,
    order_by: str | Sequence[str] | None = None,
    progress: Progress | None = None,
) -> FCAC:
    """Play the next round of a model with the rows of a Spark data frame; nothing learned is forgotten.

    Parameters
    ----------
    model : FCAC
        From :func:`fit`, or any model of one process that was fitted without privacy.
    frame : pyspark.sql.DataFrame
        With the column of sites, if the model has sites.
    partition_by, order_by, progress
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
    return _round(model, frame, _schema_of(model), column, partition_by, order_by, progress, keep_schema=True)


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
    _check_columns(frame, schema, None)
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


def _round(
    model: FCAC,
    frame: Any,
    schema: Schema,
    site_column: str | None,
    partition_by: str | Sequence[str] | None,
    order_by: str | Sequence[str] | None,
    progress: Progress | None,
    *,
    keep_schema: bool,
) -> FCAC:
    check_ready()
    _check_columns(frame, schema, site_column)
    if site_column is not None and partition_by is not None:
        raise ValueError("partition_by: with site_column the rows of a site go together; leave one of the two out")
    if site_column is None and order_by is not None:
        raise ValueError("order_by: it orders the rows of a site; give site_column too, or leave it out")
    plan = partitions.plan_for(model, schema, site_column)
    used = frame.select(
        *dict.fromkeys([*schema.columns, *_listed(site_column), *_listed(partition_by), *_listed(order_by)])
    )
    with watched(frame.sparkSession, progress), one_line():
        if site_column is None:
            found = _condense_partitions(used, plan, partition_by)
        else:
            found = _condense_sites(used, plan, partitions.states_of(model, plan), _listed(order_by) or schema.columns)
    return partitions.play(model, plan, found, schema, keep_schema=keep_schema)


def _condense_sites(
    frame: Any, plan: Plan, before: Mapping[SiteName, bytes], order_by: Sequence[str]
) -> list[Condensed]:
    """One task condenses a site; the driver gets one state for each."""
    ordered = frame.repartition(plan.site_column).sortWithinPartitions(plan.site_column, *order_by)
    rows = ordered.mapInArrow(_condenser(plan, before), _CONDENSED).collect()
    return [Condensed(json.loads(row.site), bytes(row.state), row.n_rows, row.n_dropped) for row in rows]


def _condense_partitions(frame: Any, plan: Plan, partition_by: str | Sequence[str] | None) -> list[Condensed]:
    """Every partition is condensed, and states are merged in a tree; the driver gets one."""
    dealt = frame if partition_by is None else frame.repartition(*_listed(partition_by))
    states = dealt.mapInArrow(_condenser(plan, {}), _CONDENSED)
    number = _n_partitions(dealt)
    while number > 1:
        states = states.groupBy("bucket").applyInArrow(_merged, _CONDENSED)
        number = -(-number // _MERGED_AT_ONCE)
    return [Condensed(json.loads(row.site), bytes(row.state), row.n_rows, row.n_dropped) for row in states.collect()]


def _condenser(plan: Plan, before: Mapping[SiteName, bytes]) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        with tell():
            for found in partitions.condense(plan, batches, before):
                yield _row(
                    json.dumps(found.site), number // _MERGED_AT_ONCE, found.state, found.n_rows, found.n_dropped
                )

    return work


def _merged(table: pa.Table) -> pa.Table:
    """Merge the states of one bucket into one of the next level."""
    with tell():
        state = partitions.merge(table.column("state").to_pylist())
    n_rows, n_dropped = (sum(table.column(name).to_pylist()) for name in ("n_rows", "n_dropped"))
    bucket = table.column("bucket")[0].as_py() // _MERGED_AT_ONCE
    return pa.Table.from_batches([_row(table.column("site")[0].as_py(), bucket, state, n_rows, n_dropped)])


def _row(site: str, bucket: int, state: bytes, n_rows: int, n_dropped: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"site": [site], "bucket": [bucket], "state": [state], "n_rows": [n_rows], "n_dropped": [n_dropped]},
        schema=pa.schema(
            [
                ("site", pa.string()),
                ("bucket", pa.int64()),
                ("state", pa.binary()),
                ("n_rows", pa.int64()),
                ("n_dropped", pa.int64()),
            ]
        ),
    )


def _n_partitions(frame: Any) -> int:
    """Return the number of partitions; Spark Connect does not tell it, so there the tree is as high as it may be."""
    try:
        return int(frame.rdd.getNumPartitions())
    except Exception:
        return _MERGED_AT_ONCE**3


# ---------------------------------------------------------------- columns


def _plain_schema(frame: Any, site_column: str | None) -> Schema:
    from pyspark.sql.types import BooleanType, NumericType

    fields = [field for field in frame.schema.fields if field.name != site_column]
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


def _check_columns(frame: Any, schema: Schema, site_column: str | None) -> None:
    lacking = [name for name in [*schema.columns, *_listed(site_column)] if name not in frame.columns]
    if lacking:
        raise DataError(f"the frame has no column {', '.join(lacking[:8])}")


def _listed(names: str | Sequence[str] | None) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else list(names)
