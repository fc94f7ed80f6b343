"""Secure aggregation: sums over many sites of which nobody, the hub included, sees a single summand.

The protocol is that of Bonawitz and others, *Practical Secure Aggregation for Privacy-Preserving Machine Learning*
(2017), with the sparse graph of Bell and others (2020): :class:`Member` is a site, :class:`Collector` the hub, and a
:class:`Roster`, signed by the study, says who may take part.
"""

from __future__ import annotations

from fcac.aggregation.collector import Collector
from fcac.aggregation.keys import SigningKey
from fcac.aggregation.member import Assignment, Member
from fcac.aggregation.roster import Roster

__all__ = ["Assignment", "Collector", "Member", "Roster", "SigningKey"]
