"""What a stored reservoir must look like before the kernels, which do not check, may see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac.persistence.format import require_arrays

#: Largest value of a row either way: squares beyond it overflow.
LARGEST = 1e150

_FORMS = {
    "seeds": (2, np.float64),
    "means": (2, np.float64),
    "squares": (2, np.float64),
    "weights": (1, np.float64),
    "scales": (1, np.float64),
    "waiting": (2, np.float64),
    "waiting_weights": (1, np.float64),
}
_LARGEST_COUNT = 2**53


def check_form(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse, with a ``ValueError``, parts whose types and shapes no reservoir could have produced."""
    require_arrays(arrays, _FORMS, "reservoir")
    for name, low, high in (
        ("n_features", 1, _LARGEST_COUNT),
        ("max_nodes", 2, _LARGEST_COUNT),
        ("salt", 0, 2**64),
        ("n_learned", 0, _LARGEST_COUNT),
        ("bar", 0, 2**64),
    ):
        value = meta.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool) and low <= value < high
        _require(whole, f"{name} is not a whole number it could have")
    # while every distinct row is a seed, no other sample of rows is needed
    _require(("sample" in arrays) == (meta["bar"] != 2**64 - 1), "it has no sample of rows, or one too many")
    if "sample" in arrays:
        bar = meta.get("sample_bar")
        _require(isinstance(bar, int) and not isinstance(bar, bool) and 0 < bar < 2**64, "sample_bar is no bar of keys")
        require_arrays(arrays, {"sample": (2, np.float64), "sample_weights": (1, np.float64)}, "reservoir")
        _require(arrays["sample"].shape[1] == meta["n_features"], "the sample has another number of features")
    d, k = meta["n_features"], len(arrays["seeds"])
    gaps = ("present", "spots") if "present" in arrays or "spots" in arrays else ()
    require_arrays(arrays, dict.fromkeys(gaps, (2, np.float64)), "reservoir")
    for name in ("seeds", "means", "squares", *gaps):
        _require(arrays[name].shape == (k, d), f"array {name!r} does not fit the number of seeds and features")
    _require(arrays["weights"].shape == (k,), "there is not one weight per seed")
    _require(arrays["scales"].shape == (d,), "there is not one scale per feature")
    _require(arrays["waiting"].shape[1] == d, "the waiting rows have another number of features")
    _require(arrays["waiting_weights"].shape == (len(arrays["waiting"]),), "there is not one weight per waiting row")


def check_content(
    meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], keys: NDArray[np.uint64], block: int
) -> None:
    """Refuse, with a ``ValueError``, parts whose values no reservoir could have produced."""
    k = len(keys)
    _require(len(arrays["waiting"]) < block, "it holds back more rows than it may")
    _require(k <= meta["max_nodes"], "it has more seeds than it may")
    _require((meta["n_learned"] > 0) == (k > 0), "it has seeds but has learned nothing, or the reverse")
    _require(not k or int(keys.max()) < meta["bar"], "a key is not below the bar")
    _require(len(np.unique(keys)) == k, "a key is double")
    with_gaps = "present" in arrays
    for name in ("seeds", "means", "waiting", *(("spots",) if with_gaps else ())):
        # rows that wait have not been looked at: they may bring the first gap
        open_to_gaps = name == "waiting" or (with_gaps and name == "seeds")
        fits = (np.abs(arrays[name]) <= LARGEST) | (np.isnan(arrays[name]) & open_to_gaps)
        _require(bool(fits.all()), "a value is not finite or too large")
    if with_gaps:
        present = arrays["present"]
        known = np.isfinite(present) & (present >= 0) & (present <= arrays["weights"][:, None] * (1 + 1e-9))
        _require(bool(known.all()), "a cell knows a feature from more rows than it has")
    for name in ("weights", "waiting_weights", "scales"):
        positive = np.isfinite(arrays[name]) & (arrays[name] > 0)
        _require(bool(positive.all()), f"a number of {name!r} is not positive")
    _require(bool((np.isfinite(arrays["squares"]) & (arrays["squares"] >= 0)).all()), "a sum of squares is negative")


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"not a valid reservoir: {what}")
