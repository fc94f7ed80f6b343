"""An estimator that only holds a privacy mechanism, to test how estimators copy one."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator


class Holder(BaseEstimator):
    """An estimator with a mechanism, as FCAC is."""

    def __init__(self, privacy: Any = None) -> None:
        self.privacy = privacy
