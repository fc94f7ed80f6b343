"""fcac as a stage of a ``pyspark.ml`` pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.functions import vector_to_array
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasPredictionCol, HasSeed, HasWeightCol
from pyspark.ml.util import (
    DefaultParamsReadable,
    DefaultParamsReader,
    DefaultParamsWritable,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import LongType

from fcac.model.fcac import FCAC
from fcac.model.storage import from_bytes, to_bytes
from fcac.spark import jobs
from fcac.spark.session import tell


class _Columns(HasFeaturesCol, HasPredictionCol, HasSeed, HasWeightCol):
    """Parameters of estimator and model."""

    siteCol = Param(Params._dummy(), "siteCol", "column that names the site of each row", TypeConverters.toString)
    nClusters = Param(Params._dummy(), "nClusters", "number of clusters, if it is known", TypeConverters.toInt)
    maxNodes = Param(Params._dummy(), "maxNodes", "most nodes that a site condenses its rows to", TypeConverters.toInt)


class FCACEstimator(_Columns, Estimator[Any], DefaultParamsReadable[Any], DefaultParamsWritable):
    """Clusters the vectors of a column; nobody says how many clusters there are.

    Parameters
    ----------
    featuresCol : str, default="features"
        Column of vectors, as `VectorAssembler` makes it.
    predictionCol : str, default="prediction"
    siteCol : str, optional
        Column that names the site of each row.
    weightCol : str, optional
        Column that says how many rows each row stands for.
    nClusters : int, optional
        Number of clusters, if it is known.
    maxNodes : int, optional
    seed : int, default=0
    """

    @keyword_only  # type: ignore[untyped-decorator]
    def __init__(
        self,
        *,
        featuresCol: str = "features",
        predictionCol: str = "prediction",
        siteCol: str | None = None,
        weightCol: str | None = None,
        nClusters: int | None = None,
        maxNodes: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._setDefault(featuresCol="features", predictionCol="prediction", seed=0)
        given = {name: value for name, value in self._input_kwargs.items() if value is not None}
        self._set(**given)

    def _fit(self, dataset: DataFrame) -> FCACModel:
        site = self.getOrDefault(self.siteCol) if self.isDefined(self.siteCol) else None
        weight = self.getWeightCol() if self.isDefined(self.weightCol) else None
        frame = _spread(dataset, self.getFeaturesCol(), [name for name in (site, weight) if name is not None])
        model = jobs.fit(
            frame,
            site_column=site,
            weight_column=weight,
            n_clusters=self.getOrDefault(self.nClusters) if self.isDefined(self.nClusters) else None,
            max_nodes=self.getOrDefault(self.maxNodes) if self.isDefined(self.maxNodes) else None,
            random_state=self.getSeed(),
        )
        fitted: FCACModel = self._copyValues(FCACModel(model))
        return fitted


class FCACModel(_Columns, Model, MLWritable, MLReadable[Any]):
    """What :class:`FCACEstimator` has found; ``fcac_model`` is the `FCAC` model itself."""

    def __init__(self, model: FCAC | None = None) -> None:
        super().__init__()
        self._setDefault(featuresCol="features", predictionCol="prediction", seed=0)
        self.fcac_model = model

    def _transform(self, dataset: DataFrame) -> DataFrame:
        assert self.fcac_model is not None
        stored = to_bytes(self.fcac_model)

        def label(vectors: pa.Array) -> pa.Array:
            rows = np.array(vectors.to_pylist(), np.float64)
            with tell():
                found = jobs.loaded(stored).server_.predict(rows, 1) if len(rows) else np.empty(0)
            return pa.array(found, pa.int64())

        vectors = vector_to_array(sql.col(self.getFeaturesCol()))
        return dataset.withColumn(self.getPredictionCol(), sql.arrow_udf(label, LongType())(vectors))

    def write(self) -> MLWriter:
        """Return what writes this model, with the path still to be named."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader[Any]:
        """Return what reads a model."""
        return _Reader(cls)


class _Writer(MLWriter):
    def __init__(self, instance: FCACModel) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        DefaultParamsWriter.saveMetadata(self._instance, path, self.sc)
        assert self._instance.fcac_model is not None
        spark = SparkSession.getActiveSession()
        assert spark is not None
        row = [(bytearray(to_bytes(self._instance.fcac_model)),)]
        spark.createDataFrame(row, "model binary").coalesce(1).write.parquet(f"{path}/data")


class _Reader(MLReader[Any]):
    def __init__(self, cls: type[FCACModel]) -> None:
        super().__init__()
        self._cls = cls

    def load(self, path: str) -> FCACModel:
        metadata = DefaultParamsReader.loadMetadata(path, self.sc)
        spark = SparkSession.getActiveSession()
        assert spark is not None
        row = spark.read.parquet(f"{path}/data").first()
        assert row is not None
        model = self._cls(from_bytes(bytes(row.model)))
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model


def _spread(dataset: DataFrame, features: str, beside: list[str]) -> DataFrame:
    """Return a frame with a column for each entry of the vectors."""
    first = dataset.select(features).first()
    if first is None:
        raise ValueError(f"{features}: the frame has no rows")
    width = len(first[0])
    array = vector_to_array(sql.col(features))
    return dataset.select(*beside, *[array[i].alias(f"{features}_{i}") for i in range(width)])
