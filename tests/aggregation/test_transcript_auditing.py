"""The audit of the hub's transcript passes the shipped protocol and finds planted faults."""

import pytest
from planted_faults import FAULTS

from fcac.aggregation.transcript_attacks import Fault, _range_attack, _Watch, audit_aggregation
from fcac.privacy import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler


def _mechanism():
    return NodeRelease(8, [[0, 1], [0, 1]], n_cells=2, sampler=InsecureTestSampler(5))


def _watched(fault, n_runs):
    watch = _Watch(_mechanism(), fault)
    for run in range(n_runs):
        watch.view(run % 2 == 0, run)
    return {attack.name for attack in (watch.noise(), watch.masks()) if not attack.holds}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shipped", *(name for name in FAULTS if name.startswith(("noise", "masks")))])
def test_noise_and_masks(name):
    found = _watched(FAULTS.get(name, Fault()), 20 if name.startswith("noise") else 8)
    assert found == (set() if name == "shipped" else {name.partition(":")[0]})


@pytest.mark.slow
def test_totals_that_wrap_around():
    assert _range_attack(_mechanism(), Fault()).holds
    result = _range_attack(_mechanism(), FAULTS["range: totals modulo 2**32"])
    assert not result.holds
    assert "wrapped around" in result.verdict


@pytest.mark.soak
@pytest.mark.parametrize("name", ["shipped", *FAULTS])
def test_the_whole_audit(name):
    result = audit_aggregation(_mechanism(), 30, FAULTS.get(name))
    assert [attack.name for attack in result.attacks] == ["noise", "records", "masks", "range"]
    found = {attack.name for attack in result.attacks if not attack.holds}
    assert result.holds == (name == "shipped") == (not found), result
    assert name == "shipped" or name.partition(":")[0] in found, result
    assert result.to_dict()["n_runs"] == 30


def test_too_few_runs():
    with pytest.raises(ValueError, match="at least 20"):
        audit_aggregation(_mechanism(), 10)
