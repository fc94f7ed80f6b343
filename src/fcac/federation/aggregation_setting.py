"""The setting ``aggregation``: how the sites' totals come together."""

from __future__ import annotations

#: The name of secure aggregation in settings and statements.
SECURE = "secure"


def parse_aggregation(text: str) -> int | None:
    """Return the tolerance that ``aggregation="secure:t=2"`` names; None for "secure", -1 for "plain".

    >>> parse_aggregation("plain"), parse_aggregation("secure"), parse_aggregation("secure:t=2")
    (-1, None, 2)
    """
    if text == "plain":
        return -1
    word, colon, setting = text.partition(":")
    if word == SECURE and not colon:
        return None
    name, _, value = setting.partition("=")
    if word != SECURE or name.strip() != "t" or not value.strip().isdigit() or int(value) < 1:
        raise ValueError(f"aggregation must be 'plain', 'secure' or 'secure:t=2' (sites that may vanish), got {text!r}")
    return int(value)
