"""What pytest must not collect: modules that cannot be imported without a package that is not installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("pyspark") else ["src/fcac/spark/_ml.py"]
