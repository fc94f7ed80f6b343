"""Files: what is damaged, foreign or hostile is refused in words, before anything large is allocated."""

from __future__ import annotations

import json
import os
import pickle
import stat
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcac import CAE, CAEFC, CAPlus, load, persistence, save
from fcac.model.storage import from_bytes, to_bytes
from fcac.persistence import pack, read, unpack, write_atomic

X = np.random.default_rng(0).normal(size=(60, 2))
MODEL = CAEFC(min_nodes=3).fit(X)
DATA = to_bytes(MODEL)


def traced(function, *args):
    """Call, expecting a ValueError; return its text and the peak of memory allocated meanwhile."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r".") as caught:
            function(*args)
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- the byte form


def test_equal_input_gives_equal_bytes():
    arrays = {"b": np.arange(3), "a": np.eye(2)}
    assert pack("note", {"x": 1, "y": [2]}, arrays) == pack("note", {"y": [2], "x": 1}, dict(reversed(arrays.items())))
    assert to_bytes(CAEFC(min_nodes=3).fit(X)) == DATA


@pytest.mark.parametrize("kind", ["float64", "float32", "int64", "int32", "int16", "int8", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (4,), (2, 3, 4)])
def test_arrays_come_back_as_they_were(kind, shape):
    array = np.random.default_rng(0).integers(0, 2, shape).astype(kind)
    _, arrays = unpack(pack("note", {}, {"x": array, "t": array.T}))
    for name, expected in (("x", array), ("t", array.T)):
        assert arrays[name].dtype == expected.dtype
        np.testing.assert_array_equal(arrays[name], expected)


def test_what_it_does_not_hold_is_named():
    with pytest.raises(ValueError, match="'x' has type object"):
        pack("note", {}, {"x": np.array([{}])})
    with pytest.raises(ValueError, match="'x' has type complex128"):
        pack("note", {}, {"x": np.ones(2, complex)})
    with pytest.raises(ValueError, match=r"JSON|nan"):
        pack("note", {"x": float("nan")}, {})


def test_keys_that_are_numbers_become_text():
    meta, _ = unpack(pack("note", {"sizes": {2: "a", 10: ("b", 1.0)}}, {}))
    assert meta == {"sizes": {"2": "a", "10": ["b", 1.0]}}


def test_another_kind_is_refused():
    assert persistence.kind_of(DATA) == "model"
    with pytest.raises(ValueError, match="holds a model, not a contribution"):
        unpack(DATA, kind="contribution")


def test_a_later_protocol_is_refused(monkeypatch):
    monkeypatch.setattr(persistence.format, "PROTOCOL", 99)
    later = pack("model", {}, {})
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"protocol 99.*upgrade fcac"):
        unpack(later)


# ---------------------------------------------------------------- damage


def test_every_truncation_is_refused():
    for size in range(len(DATA)):
        with pytest.raises(ValueError, match=r"FCAC file"):
            from_bytes(DATA[:size])


@pytest.mark.slow
def test_every_byte_matters():
    rng = np.random.default_rng(0)
    for at in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(ValueError, match=r"FCAC file|protocol"):
            from_bytes(bytes(damaged))


@pytest.mark.soak
def test_every_bit_matters():
    for at in range(len(DATA)):
        for bit in range(8):
            damaged = bytearray(DATA)
            damaged[at] ^= 1 << bit
            with pytest.raises(ValueError, match=r"FCAC file|protocol"):
                from_bytes(bytes(damaged))


def test_bytes_behind_the_end_are_refused():
    with pytest.raises(ValueError, match="FCAC file"):
        from_bytes(DATA + b"\0")


class Executed:
    def __reduce__(self):
        return (os.abort, ())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        b"PK\x03\x04" + bytes(200),
        pickle.dumps(Executed()),
        b"# a text file\n" * 20,
        b"\xff" * 64,
        bytes(64),
        (2**63).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
        (4).to_bytes(8, "little") + b"null",
        (10).to_bytes(8, "little") + b'{"a": 123}',
        (9).to_bytes(8, "little") + b'"\xff\xfe not"',
    ],
)
def test_foreign_files_are_refused(data, tmp_path):
    path = tmp_path / "foreign.fcac"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"foreign\.fcac: .*FCAC file"):
        load(path)
    with pytest.raises(ValueError, match=r"foreign\.fcac: .*FCAC file"):
        read(path)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_noise_is_refused(noise):
    with pytest.raises(ValueError, match="FCAC file"):
        from_bytes(noise)


# ---------------------------------------------------------------- hostile, but with a checksum that fits


def framed(tensors: dict, header, payload: bytes = b"") -> bytes:
    """A safetensors file by hand, whatever its header claims."""
    frame = {"__metadata__": {"fcac": header if isinstance(header, str) else json.dumps(header)}, **tensors}
    text = json.dumps(frame).encode()
    return len(text).to_bytes(8, "little") + text + payload


HEADER = {"protocol": 1, "kind": "model", "meta": {}, "sha256": "0" * 64}


@pytest.mark.parametrize(
    "tensor",
    [
        {"dtype": "F64", "shape": [2**40, 2**20], "data_offsets": [0, 16]},
        {"dtype": "F64", "shape": [2**62, 4], "data_offsets": [0, 0]},
        {"dtype": "F64", "shape": [10**12], "data_offsets": [0, 8 * 10**12]},
        {"dtype": "F64", "shape": [-1], "data_offsets": [0, 16]},
        {"dtype": "F64", "shape": [2], "data_offsets": [16, 0]},
        {"dtype": "F64", "shape": [2], "data_offsets": [-16, 0]},
        {"dtype": "F64", "shape": [2], "data_offsets": [8, 24]},
        {"dtype": "F99", "shape": [2], "data_offsets": [0, 16]},
        {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]},
        {"dtype": "F64", "shape": [0, 2**60], "data_offsets": [0, 0]},
        {"dtype": "F64", "shape": "2", "data_offsets": [0, 16]},
        {"dtype": "F64"},
        [],
        None,
    ],
)
def test_claims_about_arrays_allocate_nothing(tensor):
    text, peak = traced(from_bytes, framed({"x": tensor}, HEADER, bytes(16)))
    assert "FCAC file" in text
    assert peak < 1_000_000


@pytest.mark.parametrize(
    "header",
    [
        "[" * 100_000,
        "{}",
        "[]",
        "3",
        "not json",
        json.dumps({**HEADER, "protocol": "1"}),
        json.dumps({**HEADER, "kind": 7}),
        json.dumps({**HEADER, "meta": []}),
        json.dumps({**HEADER, "protocol": 1e400}),
        json.dumps({"protocol": 1, "kind": "model", "meta": {}}),
        '{"protocol": ' + "9" * 5000 + "}",
    ],
)
def test_hostile_headers_are_refused(header):
    text, peak = traced(from_bytes, framed({}, header))
    assert "FCAC file" in text
    assert peak < 5_000_000


def test_a_deep_frame_is_refused():
    text = b"[" * 1_000_000
    with pytest.raises(ValueError, match="FCAC file"):
        from_bytes(len(text).to_bytes(8, "little") + text)


def repacked(change) -> bytes:
    """The model with its description and arrays changed, and the checksum made to fit."""
    meta, arrays = unpack(DATA)
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(meta, arrays)
    return pack("model", meta, arrays)


def assign(*path_and_value):
    *path, last, value = path_and_value

    def change(meta, arrays):
        for step in path:
            meta = meta[step]
        meta[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (assign("estimator", "os.system"), "no estimator"),
        (assign("estimator", None), "no estimator"),
        (assign("estimator", ["CAPlus"]), "no estimator"),
        (assign("estimator", "CAPlus"), "incomplete|parameters other than"),
        (assign("estimator", "CAE"), "parameters other than"),
        (assign("params", 5), "no estimator"),
        (assign("params", {"min_nodes": -1}), "min_nodes"),
        (assign("params", {"min_nodes": "many"}), "min_nodes"),
        (assign("params", {"another": 1}), "another"),
        (assign("params", {}), "parameters other than"),
        (assign("network", None), "incomplete"),
        (assign("network", {}), "not a valid network"),
        (assign("network", "n_features", 2**50), "number of features"),
        (assign("network", "n_learned", -1), "n_learned"),
        (assign("network", "rules", "topological", False), "rules|parameters"),
        (assign("feature_names", ["a"]), "feature names"),
        (assign("feature_names", 5), "feature names"),
        (lambda meta, arrays: meta.pop("feature_names"), "incomplete"),
        (lambda meta, arrays: arrays.pop("nodes"), "'nodes' is missing"),
        (lambda meta, arrays: arrays.clear(), "missing"),
    ],
)
def test_models_that_cannot_be_are_refused(change, message):
    text, peak = traced(from_bytes, repacked(change))
    assert any(part in text for part in message.split("|")), text
    assert peak < 2_000_000


def test_unknown_additions_do_no_harm():
    def change(meta, arrays):
        meta["note"] = "from a later version"
        arrays["extra"] = np.arange(3)

    np.testing.assert_array_equal(from_bytes(repacked(change)).nodes_, MODEL.nodes_)


numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-3, 80), st.floats(allow_nan=True, allow_infinity=True)
)


def check_tampering(name, where, value, model_class):
    """One number of one array is changed: refused, or else a model that still reads and learns."""
    model = model_class(min_nodes=3).fit(X)
    meta, arrays = unpack(to_bytes(model))
    array = arrays[name].copy()
    if not array.size:
        return
    if array.dtype.kind == "i" and not isinstance(value, int):
        value = 7
    array.flat[where % array.size] = value
    try:
        changed = from_bytes(pack("model", meta, {**arrays, name: array}))
    except ValueError:
        return
    changed.partial_fit(X + 0.5)
    assert changed.n_samples_seen_ == 120
    assert np.isfinite(changed.score_samples(X)).all()


TAMPERING = (
    st.sampled_from(["nodes", "counts", "bandwidths", "recency", "edges", "edge_ages", "clock"]),
    st.integers(0, 10**6),
    numbers,
    st.sampled_from([CAPlus, CAE, CAEFC]),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(*TAMPERING)
def test_a_changed_number_never_breaks_the_kernels(name, where, value, model_class):
    check_tampering(name, where, value, model_class)


@pytest.mark.soak
@settings(max_examples=5000)
@given(*TAMPERING)
def test_a_changed_number_never_breaks_the_kernels_long(name, where, value, model_class):
    check_tampering(name, where, value, model_class)


# ---------------------------------------------------------------- writing


def test_saving_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "model.fcac"
    save(MODEL, path)
    old = path.read_bytes()

    def fails(*args):
        raise OSError("no space left on device")

    for name in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fails)
            with pytest.raises(OSError, match="no space left"):
                save(CAPlus().fit(X), path)
        assert path.read_bytes() == old
        assert [entry.name for entry in tmp_path.iterdir()] == ["model.fcac"]


def test_permissions_are_kept(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()
    path.chmod(0o640)
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        save(MODEL, tmp_path / "nowhere" / "model.fcac")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "model.fcac")


def test_only_models_are_saved(tmp_path):
    with pytest.raises(TypeError, match="cannot save a dict"):
        save({}, tmp_path / "model.fcac")


def test_the_header_says_what_wrote_it():
    meta, _ = unpack(DATA)
    assert set(meta["versions"]) == {"fcac", "numpy", "python"}
    assert meta["params"] == {"age_iqr_factor": 0.1, "diversity_threshold": 1e-6, "min_nodes": 3}
    assert from_bytes(to_bytes(CAEFC(min_nodes=np.int64(3)).fit(X))).min_nodes == 3
