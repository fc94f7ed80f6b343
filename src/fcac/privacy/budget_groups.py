"""Groups of disjoint parts of a site's data, for parallel composition in its ledger.

A part is defined without looking at values, for example by a file or a day. The costs of releases of different parts do
not add up, because a record is in one part only. A round may contain rows of several parts, and its cost applies to all
of them; so parts that occurred in one round together form a group, and the ledger is given the group. If a round joins
two groups that have already been charged, no disjointness is claimed: its cost applies to every record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from fcac import persistence


def group_for(path: Path, parts: Iterable[str], round: int) -> str | None:
    """Return the group to charge for a round with rows of these parts; None: the cost applies to every record.

    Parameters
    ----------
    path : Path
        File that records which part belongs to which group.
    parts : iterable of str
        Parts of the round's rows. If there are none, the round was empty and forms a part of its own.
    round : int

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fcac.privacy.budget_groups import group_for
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "parts.json")
    >>> [group_for(path, days, 1) for days in (["mon"], ["tue", "wed"], ["wed"], ["mon", "tue"], [])]
    ['mon', 'tue', 'tue', None, 'round 1, no rows']
    >>> folder.cleanup()
    """
    names = sorted(set(parts))
    if not names:
        return f"round {round}, no rows"
    groups: dict[str, str] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    known = {groups[name] for name in names if name in groups}
    if len(known) > 1:
        return None
    group = known.pop() if known else names[0]
    fresh = {name: group for name in names if name not in groups}
    if fresh:
        # written before the charge: a crash in between leaves a group that has cost nothing
        persistence.write_atomic(path, json.dumps({**groups, **fresh}).encode())
    return group
