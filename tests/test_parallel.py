"""How work is divided among cores."""

from __future__ import annotations

import scipy.linalg  # noqa: F401  its library is among those that are limited
from threadpoolctl import threadpool_info

from fcac._parallel import one_blas_thread


def _threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_linear_algebra_keeps_to_one_thread_and_then_has_what_it_had() -> None:
    before = _threads()
    assert before
    with one_blas_thread():
        assert set(_threads()) == {1}
        with one_blas_thread():
            assert set(_threads()) == {1}
        assert set(_threads()) == {1}
    assert _threads() == before
