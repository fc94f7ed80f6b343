"""Secure aggregation: sums over many sites of which nobody, the hub included, sees a single summand.

The protocol is that of Bonawitz and others, *Practical Secure Aggregation for Privacy-Preserving Machine Learning*
(2017), among up to 100 sites: :class:`Member` is a site, :class:`Collector` the hub, and a :class:`Roster` says who
takes part; each site pins the one that its operator has agreed to (:class:`RosterFile`).
"""

from __future__ import annotations

from fcac.aggregation.collector import Collector
from fcac.aggregation.keys import SigningKey, fingerprint
from fcac.aggregation.member import Assignment, Member
from fcac.aggregation.roster import Roster, RosterFile

__all__ = ["Assignment", "Collector", "Member", "Roster", "RosterFile", "SigningKey", "fingerprint"]
