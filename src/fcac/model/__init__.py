"""Whole systems as scikit-learn estimators, and how fitted ones are saved and loaded."""

from fcac.model.fcac import FCAC
from fcac.model.storage import load, save

__all__ = ["FCAC", "load", "save"]
