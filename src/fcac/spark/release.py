"""`NodeRelease` on Spark: executors add up totals, and the driver adds noise to their sum, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from fcac._typing import Integers
from fcac.model.partition_totals import GridPlan, flat_totals, weights_of, whole_totals
from fcac.privacy.cell_release import Request
from fcac.privacy.cell_statistics import Totals
from fcac.spark.session import tell

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
