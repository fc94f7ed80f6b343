"""Encoders of text: deterministic, offline, compared by version and checksum; other code only where it is trusted."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from fcac.exceptions import DataError, RequestError
from fcac.tables import Schema, open_tables, text_encoder
from fcac.tables.text_encoder import check_same, encode, encoder, fingerprint, width

pytest.importorskip("tokenizers")

TEXTS = ["chest pain since monday", "Fraktur des Arms", "  ", "", "chest pain since monday", "x" * 5000]


@pytest.fixture(autouse=True)
def _fresh():
    encoder.cache_clear()
    yield
    encoder.cache_clear()


@pytest.mark.slow
def test_a_vector_depends_on_its_text_only(monkeypatch):
    known = encoder()
    rows = known.encode(TEXTS)
    assert rows.dtype == np.float32
    assert rows.shape == (6, known.width) == (6, 256)
    np.testing.assert_array_equal(np.isnan(rows).all(axis=1), [False, False, True, True, False, False])
    np.testing.assert_array_equal(rows[0], rows[4])
    np.testing.assert_allclose(np.linalg.norm(rows[[0, 1, 5]], axis=1), 1, rtol=1e-6)
    monkeypatch.setattr(text_encoder, "_TEXTS_AT_ONCE", 2)
    np.testing.assert_array_equal(known.encode(TEXTS), rows)
    np.testing.assert_array_equal(np.concatenate([known.encode([text]) for text in TEXTS]), rows)
    assert known.encode([]).shape == (0, 256)


def test_a_shorter_code_is_the_beginning_of_the_long_one():
    short, long = encoder("wordllama:16").encode(TEXTS[:1])[0], encoder().encode(TEXTS[:1])[0, :16]
    np.testing.assert_allclose(short, long / np.linalg.norm(long), rtol=1e-5)
    assert fingerprint("wordllama:16")["checksum"] == fingerprint("wordllama")["checksum"]
    assert re.fullmatch(r"[0-9a-f]{64}", fingerprint("wordllama")["checksum"])


@pytest.mark.slow
def test_nothing_is_fetched_and_no_logging_is_set_up():
    code = (
        "import socket, logging, sys\n"
        "def no(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = no\n"
        "from fcac.tables.text_encoder import encoder\n"
        "print(encoder().encode(['a text']).shape, logging.getLogger().handlers, 'wordllama' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "(1, 256) [] False"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bert", "there is no encoder 'bert': write wordllama"),
        ("wordllama:1", "2 to 256 numbers"),
        ("wordllama:257", "2 to 256 numbers"),
        ("subprocess:call", "code from outside fcac.*set FCAC_TRUSTED_ENCODERS=subprocess:call"),
    ],
)
def test_names_that_are_refused(name, words):
    with pytest.raises(RequestError, match=words):
        encoder(name)


def test_a_callable_runs_only_where_it_is_trusted(tmp_path, monkeypatch):
    (tmp_path / "our_encoder.py").write_text(
        "__version__ = '3'\n"
        "def embed(texts):\n    return [[len(text), text.count('a')] for text in texts]\n"
        "def ragged(texts):\n    return [[1.0]] * (len(texts) - 1)\n"
        "def crowd(texts):\n    return [[len(texts), 0]] * len(texts)\n"
        "def declared(texts):\n    return crowd(texts)\n"
        "declared.independent = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RequestError, match="if you trust it, set FCAC_TRUSTED_ENCODERS=our_encoder:embed"):
        encoder("our_encoder:embed")
    assert "our_encoder" not in sys.modules
    monkeypatch.setenv(
        "FCAC_TRUSTED_ENCODERS", ",".join(f"our_encoder:{f}" for f in ("embed", "ragged", "none", "crowd", "declared"))
    )
    known = encoder("our_encoder:embed")
    assert (known.version, known.width) == ("3", 2)
    np.testing.assert_array_equal(known.encode(["banana", " "]), [[6, 3], [np.nan, np.nan]])
    # a text is seen alone, unless the encoder declares that it does not mind
    assert encoder("our_encoder:crowd").encode(["a", "b"])[:, 0].tolist() == [1, 1]
    assert encoder("our_encoder:declared").encode(["a", "b"])[:, 0].tolist() == [2, 2]
    first = fingerprint("our_encoder:embed")
    (tmp_path / "our_encoder.py").write_text((tmp_path / "our_encoder.py").read_text() + "# changed\n")
    encoder.cache_clear()
    assert fingerprint("our_encoder:embed") != first
    with pytest.raises(DataError, match="must return one row"):
        encoder("our_encoder:ragged").encode(["a", "b"])
    with pytest.raises(RequestError, match="cannot be loaded"):
        encoder("our_encoder:none")
    np.testing.assert_array_equal(encode(["banana"], "our_encoder:embed:2"), [[6, 3]])
    with pytest.raises(DataError, match="must return one row of 3 numbers"):
        encode(["banana"], "our_encoder:embed:3")


def test_the_width_is_known_where_there_are_no_texts(monkeypatch):
    monkeypatch.setattr(text_encoder.importlib.util, "find_spec", lambda name: None)
    assert (width(), width("wordllama:8"), width("not_here:f:7")) == (256, 8, 7)
    with pytest.raises(RequestError, match="2 to 256"):
        width("wordllama:1")


def test_another_version_is_told_what_to_install():
    own = fingerprint("wordllama:8")
    check_same({"wordllama:8": own})
    with pytest.raises(RequestError, match=r"not the one of the study.*pip install wordllama==0\.1"):
        check_same({"wordllama:8": {"version": "0.1", "checksum": "0" * 64}})


def test_without_the_package_the_advice_is_the_extra(monkeypatch):
    monkeypatch.setattr(text_encoder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"pip install 'fcac\[text\]'"):
        encoder()


SCHEMA = 'fcac_schema = 1\nmissing = "native"\n[columns]\nnote = { kind = "text", encoder = "wordllama:8" }\n'


def test_a_column_of_text_is_a_kind_of_column(tmp_path):
    schema = Schema.from_toml(SCHEMA)
    path = tmp_path / "x.csv"
    path.write_text("note,a\nchest pain,1\n,2\nbroken arm,3\n")
    rows = np.concatenate([block for _, block in open_tables([path], schema).pieces()])
    np.testing.assert_array_equal(rows[[0, 2]], encode(["chest pain", "broken arm"], "wordllama:8"))
    assert np.isnan(rows[1]).all()


def test_a_site_with_another_encoder_does_not_start(tmp_path):
    pytest.importorskip("cryptography")
    from fcac.deployment.site_agent import SiteAgent
    from fcac.deployment.site_setup import site_settings
    from testing.federation_study import make_study

    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "x.csv").write_text("note\nchest pain\n")
    root = make_study(tmp_path, ["north"], tmp_path / "schema.toml")
    bundle = root.parent / "bundles" / "north"
    settings = site_settings(bundle, tmp_path / "x.csv", tmp_path / "state")
    assert settings.encoders["wordllama:8"]["checksum"] == fingerprint("wordllama:8")["checksum"]
    SiteAgent(settings).finder().check_columns()
    told = (bundle / "bundle.toml").read_text()
    (bundle / "bundle.toml").write_text(told.replace(fingerprint("wordllama:8")["checksum"], "0" * 64))
    with pytest.raises(RequestError, match="is not the one of the study"):
        SiteAgent(site_settings(bundle, tmp_path / "x.csv", tmp_path / "state"))
