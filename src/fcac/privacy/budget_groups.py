"""Parts of a site's data for its ledger: which rounds add up, and which do not.

A part is fixed without looking at values: a file, or a day. Releases of different parts do not add up, because a
record is in one part only. A round may hold rows of several parts, and its cost falls on all of them; so parts that
were in one round together form a group, and the ledger is told the group. Where a round joins two groups that have
been charged before, nothing is claimed: its cost falls on every record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from fcac import persistence


def group_for(path: Path, parts: Iterable[str], round: int) -> str | None:
    """Return what the ledger is to be told of a round with rows of these parts; None: its cost falls on everybody.

    Parameters
    ----------
    path : Path
        Where it is remembered which part is in which group.
    parts : iterable of str
        Parts of the round's rows. None at all: the round was empty, and is a part of its own.
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
        # before the charge: a crash in between leaves a group that cost nothing
        persistence.write_atomic(path, json.dumps({**groups, **fresh}).encode())
    return group
