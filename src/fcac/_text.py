"""Counts, durations and lists as readable text."""

from __future__ import annotations

from collections.abc import Sequence


def counted(n: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "site"), counted(1200, "row"), counted(2, "community", "communities")
    ('1 site', '1,200 rows', '2 communities')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Return a duration as readable text.

    >>> duration(0.25), duration(75), duration(7300)
    ('0.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return names as a comma-separated list of limited length.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def clusters_named(labels: Sequence[int]) -> str:
    """Return the names of clusters, in a list of limited length.

    >>> clusters_named([4]), clusters_named([1, 2, 3])
    ('cluster 4', 'clusters 1, 2 and 3')
    """
    names = [str(label) for label in labels]
    if len(names) == 1:
        return f"cluster {names[0]}"
    return f"clusters {listed(names, 6) if len(names) > 6 else ', '.join(names[:-1]) + ' and ' + names[-1]}"


def plain(text: str, most: int = 300) -> str:
    r"""Return text from elsewhere in a form that can be shown: on one line, of limited length, without escapes.

    Everything that does not print (control characters, terminal escapes, marks that change the writing direction,
    halves of characters) becomes a question mark.

    >>> plain("north\x1b[31m\n"), plain("abcdef", most=4)
    ('north?[31m?', 'abc…')
    """
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
