"""What mechanisms state: a cost where something is promised, and none where nothing is."""

from __future__ import annotations

import math

import pytest

from fcac.privacy.mechanism import Mechanism
from fcac.privacy.statements import in_a_line


class Shuffled(Mechanism):
    """An example that promises nothing."""

    kind = "row"
    title = "shuffling"


class Promising(Shuffled):
    """One that promises something and does not say at what cost."""

    guarantee = "central"


def test_a_mechanism_that_promises_nothing_states_no_cost() -> None:
    assert Shuffled().epsilon == math.inf
    assert Shuffled().statement(2) == {"mechanism": "Shuffled", "rounds": 2}
    assert in_a_line(Shuffled().statement(2)) == "Shuffled"  # not in the library's folder, so only its name is known


def test_a_promise_has_a_cost() -> None:
    with pytest.raises(ValueError, match="epsilon: Promising promises something, so it must be finite"):
        Promising().statement(1)
    assert in_a_line({"mechanism": "NodeRelease", "rounds": 1}).startswith("differentially private release: eps = inf")
