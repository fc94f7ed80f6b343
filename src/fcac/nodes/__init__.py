"""Condense any number of rows to a bounded number of weighted nodes, in one pass.

``Reservoir`` is the state: it learns rows, is read as nodes with counts and spreads, and can be merged and stored.
"""

from __future__ import annotations

from fcac.nodes.reservoir import MAX_NODES, Reservoir
from fcac.nodes.trail import Trail

__all__ = ["MAX_NODES", "Reservoir", "Trail"]
