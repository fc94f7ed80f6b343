"""Whole systems as scikit-learn estimators, and how fitted ones are saved and loaded."""

from fcac.estimators.ca_plus_communities import CAPlusCommunities
from fcac.estimators.fcac import FCAC
from fcac.estimators.models import load, save

__all__ = ["FCAC", "CAPlusCommunities", "load", "save"]
