"""fcac on Apache Spark: rows become nodes where they are, and only nodes travel to the driver.

For one owner whose tables outgrow a machine. A site, or a partition where there are no sites, is condensed by one task;
states of partitions are merged in a tree on the executors; the driver finds the clusters. The model is the same `FCAC`
as everywhere. Needs the extra ``spark`` (pyspark 4 and a Java runtime) on the driver and fcac on the executors.

In a Spark session::

    frame = session.read.parquet("lake/visits")
    model = fcac.spark.fit(frame, site_column="clinic")
    fcac.spark.predict(model, frame).groupBy("label").count().show()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fcac._lazy import attach

if TYPE_CHECKING:
    from fcac.spark.jobs import fit, predict, update

__all__ = ["fit", "predict", "update"]

__getattr__, __dir__ = attach(__name__, __all__, dict.fromkeys(__all__, "fcac.spark.jobs"))
