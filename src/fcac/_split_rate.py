"""How often data without clusters may come out as several; settings hold it, also where nothing is learned."""

from __future__ import annotations

#: The rate unless another is asked for.
FALSE_SPLIT_RATE = 0.1


def check_rate(false_split_rate: float) -> float:
    """Return a rate of false splits as a number, if it is one."""
    if isinstance(false_split_rate, bool) or not 0 < false_split_rate < 1:
        raise ValueError(f"false_split_rate must be a share between 0 and 1, such as 0.1; it is {false_split_rate!r}")
    return float(false_split_rate)
