"""Labelled prototypes that label rows: what is exported, and what sites get to label their own rows."""

from fcac.codebook.codebook import Codebook

__all__ = ["Codebook"]
