"""Several sites without a mechanism: a word of warning, once for a model."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fcac import FCAC
from fcac.exceptions import OpenNodes
from fcac.privacy import NodeRelease

X = np.random.default_rng(0).normal(size=(60, 2))


def test_nodes_of_several_sites_can_be_rows() -> None:
    model = FCAC(random_state=0)
    with pytest.warns(OpenNodes, match="a node can be a row"):
        model.fit({"a": X[:30], "b": X[30:]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit({"a": X[:30], "b": X[30:]})
        FCAC(random_state=0).fit(X)
        later = FCAC(random_state=0).fit(X[:30])
    with pytest.warns(OpenNodes, match="come from the rows"):
        FCAC(privacy=NodeRelease(1.0, [[-5.0, 5.0]] * 2), random_state=0).fit(X, groups=np.arange(60) % 2)
    with pytest.warns(OpenNodes):
        later.partial_fit(X, groups=np.arange(60) % 2 + 5)
