"""Shared by all tests."""

from __future__ import annotations

import os

# Lets scikit-learn's check of array-API input run instead of being skipped; must be set before SciPy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
