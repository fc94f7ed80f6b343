"""Are two things the same, bit for bit?"""

from __future__ import annotations

from fcac.federation import Server


def assert_same_server(one: Server, other: Server) -> None:
    """Fail, and say what differs, unless two servers are the same in every bit."""
    (meta, arrays), (other_meta, other_arrays) = one.to_parts(), other.to_parts()
    assert meta == other_meta
    assert set(arrays) == set(other_arrays)
    for name, array in arrays.items():
        assert array.dtype == other_arrays[name].dtype, name
        assert array.tobytes() == other_arrays[name].tobytes(), name
