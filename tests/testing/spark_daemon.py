"""The daemon that forks Spark's Python workers, with fcac imported once instead of in every worker."""

from __future__ import annotations

from pyspark.daemon import manager

import fcac.model.partition_totals  # noqa: F401  (workers are forked with it)

if __name__ == "__main__":
    manager()
