"""Checks that a stored network must pass before the kernels, which check nothing, may use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac.art.learn import N_START
from fcac.persistence.format import require_arrays

_FORMS = {
    "nodes": (2, np.float64),
    "counts": (1, np.int64),
    "bandwidths": (1, np.float64),
    "recency": (1, np.int64),
    "edges": (2, np.int64),
    "edge_ages": (1, np.int64),
    "clock": (1, np.float64),
    "pending": (2, np.float64),
}
_COUNTS = ("n_features", "n_learned", "n_active", "n_deleted_edges", "n_lost")
_LARGEST_COUNT = 2**53
_LARGEST = 1e150  # as for rows: squares of larger values overflow
_NARROWEST = 1e-170  # a smaller bandwidth cannot come from float64 rows

# A network without any row states its number of features but has no array of that width to confirm it.
_MOST_FEATURES_UNSEEN = 65_536


def check_state(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise ``ValueError`` if no network could have produced these parts."""
    require_arrays(arrays, _FORMS, "network")
    for name in _COUNTS:
        _require(_is_count(meta.get(name)), f"{name} is not a count")
    _require(_are_rules(meta.get("rules")), "its rules cannot be read")
    _check_rows(meta, arrays)
    _check_edges(meta, arrays)
    _check_clock(meta, arrays)


def _require(condition: bool | np.bool, what: str) -> None:
    if not condition:
        raise ValueError(f"not a valid network: {what}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_COUNT


def _are_rules(rules: Any) -> bool:
    names = {"topological", "one_minus_cim", "min_nodes", "diversity_threshold", "age_iqr_factor"}
    if not isinstance(rules, dict) or set(rules) != names:
        return False
    numbers = [rules["diversity_threshold"], rules["age_iqr_factor"]]
    return (
        all(isinstance(rules[name], bool) for name in ("topological", "one_minus_cim"))
        and _is_count(rules["min_nodes"])
        and rules["min_nodes"] >= 1
        and all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)
        and 0 < numbers[0] < np.inf
        and 0 <= numbers[1] < np.inf
    )


def _check_rows(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    d, nodes, pending = meta["n_features"], arrays["nodes"], arrays["pending"]
    n, n_lost = len(nodes), meta["n_lost"]
    _require(d >= 1 and {nodes.shape[1], pending.shape[1]} == {d}, "the number of features differs between its arrays")
    _require(n > 0 or len(pending) > 0 or d <= _MOST_FEATURES_UNSEEN, "it states too many features for having no rows")
    _require(len(pending) < N_START, "it holds back too many rows")
    _require(not len(pending) or not n, "it holds rows back although it has nodes")
    _require(n_lost in (0, n), "it has lost some of its nodes but not all of them")
    _require({len(arrays["counts"]), len(arrays["bandwidths"])} == {n}, "counts or bandwidths do not match the nodes")
    in_order = np.array_equal(np.sort(arrays["recency"]), np.arange(n - n_lost))
    _require(in_order, "recency is not an ordering of the nodes")
    for name in ("nodes", "pending"):
        _require(not arrays[name].size or np.abs(arrays[name]).max() <= _LARGEST, "a value is not finite or too large")
    if n:
        widths, counts = arrays["bandwidths"], arrays["counts"]
        _require(counts.min() >= 1 and counts.max() < _LARGEST_COUNT, "a winning count is not positive")
        _require(widths.min() >= _NARROWEST and widths.max() <= _LARGEST, "a bandwidth is not a positive number")


def _check_edges(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    edges, ages, n_present = arrays["edges"], arrays["edge_ages"], len(arrays["nodes"]) - meta["n_lost"]
    _require(edges.shape[1] == 2 and len(ages) == len(edges), "edges and ages do not match")
    if len(edges):
        _require(meta["rules"]["topological"] and meta["n_active"] > 0, "it has edges that its rules cannot produce")
        inside = edges.min() >= 0 and edges.max() < n_present and (edges[:, 0] < edges[:, 1]).all()
        _require(inside, "an edge refers to a node that does not exist")
        _require(len(np.unique(edges, axis=0)) == len(edges), "an edge occurs twice")
        _require(ages.min() >= 1 and ages.max() < _LARGEST_COUNT, "the age of an edge is not positive")


def _check_clock(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    clock, n = arrays["clock"], len(arrays["nodes"])
    _require(clock.shape == (3,) and np.isfinite(clock).all(), "its clock is malformed")
    _require((clock[2] > 0) == (meta["n_deleted_edges"] > 0), "deleted edges and their mean age do not match")
    _require(0.0 <= clock[0] <= 1.0, "its threshold is not between 0 and 1")
    _require((meta["n_learned"] > 0) == (n > 0), "it has nodes but has seen no points, or vice versa")
    if n:
        _require(_NARROWEST <= clock[1] <= _LARGEST, "its bandwidth is not a positive number")
    if meta["n_active"] == 0:
        # until the diversity test has fired, every point becomes a node
        collected = meta["n_learned"] == n and not meta["n_lost"] and (arrays["counts"] == 1).all()
        collected = collected and np.array_equal(arrays["recency"], np.arange(n)[::-1])
        _require(collected, "its nodes are not those of an initial phase")
