"""The audit of the hub's transcript passes the shipped protocol and finds planted faults."""

import pytest

from fcac.aggregation.auditing import FAULTS, audit_aggregation
from fcac.privacy import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler


def _audit(fault=None, n_runs=20, epsilon=8):
    sampler = InsecureTestSampler(5)
    return audit_aggregation(NodeRelease(epsilon, [[0, 1]], sampler=sampler), n_runs, fault)


@pytest.mark.slow
def test_shipped_protocol_passes():
    result = _audit()
    assert result.holds, result
    assert [attack.name for attack in result.attacks] == ["noise", "records", "masks", "range"]
    assert result.to_dict()["n_runs"] == 20


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name):
    result = _audit(FAULTS[name], n_runs=30 if name.startswith("records") else 20)
    found = {attack.name for attack in result.attacks if not attack.holds}
    assert name.partition(":")[0] in found, result


def test_too_few_runs():
    with pytest.raises(ValueError, match="at least 20"):
        _audit(n_runs=10)
