"""The paper's data sets: their description, reading files, and the way through OpenML.

OpenML itself could not be reached when these tests were written. That way is tested against a server on this
machine that answers as OpenML does (its JSON descriptions and an ARFF file), with a small made-up table.
"""

import gzip
import hashlib
import json
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from sklearn.datasets import _openml

from fcac.paper.datasets import SPECS, DatasetError, Spec, find, load, scale_pixels

TOY = Spec("toy-telescope", 4242, 3, {"g": 4, "h": 2}, n_sites=2, paper_name="Toy", left_out=("ID",))
TOY_X = np.array([[1.5, -2, 3], [4, 5.25, 6], [7, 8, 9], [1, 0, 1], [2.5, 2, 2], [3, 3, 3]])
TOY_Y = np.array([0, 0, 1, 0, 1, 0])


# the description of the ten sets


def test_the_ten_sets_have_the_papers_sizes():
    """Rows, features, classes and sites of the paper's table of data sets.

    The paper counts one column more for three sets (the class or the ID column).
    """
    paper = {
        "Hill-Valley": (1212, 100, 2, 5),
        "Ozone": (2534, 73 - 1, 2, 5),
        "Bioresponse": (3751, 1777 - 1, 2, 10),
        "Phoneme": (5404, 5, 2, 10),
        "Optdigits": (5620, 64, 10, 50),
        "Pendigits": (10992, 16, 10, 50),
        "Mozilla4": (15545, 5, 2, 10),
        "Magic": (19020, 11 - 1, 2, 50),
        "FMNIST": (70000, 784, 10, 100),
        "Skin": (245057, 3, 2, 100),
    }
    ours = {s.paper_name: (s.n_rows, s.n_features, s.n_classes, s.n_sites) for s in SPECS.values()}
    assert ours == paper
    assert list(ours) == list(paper)
    ids = {1479, 1487, 4134, 1489, 28, 32, 1046, 1120, 40996, 1502}
    assert {spec.openml_id for spec in SPECS.values()} == ids


@pytest.mark.parametrize("name", ["Fashion-MNIST", "fashion-mnist", "FMNIST"])
def test_sets_are_found_by_either_name(name):
    assert find(name).openml_id == 40996


def test_an_unknown_name_lists_the_known():
    with pytest.raises(DatasetError, match=r"unknown data set 'iris': choose from hill-valley, .*skin-segmentation"):
        load("iris")


def test_only_pixels_are_scaled(tmp_path):
    assert [spec.name for spec in SPECS.values() if spec.pixels] == ["Fashion-MNIST"]
    assert scale_pixels(np.array([0, 51, 255])).tolist() == pytest.approx([-1, -0.6, 1])
    photo = Spec("photo", 0, 3, {"0": 1, "1": 1}, 1, "Photo", pixels=True)
    np.savez(tmp_path / "photo.npz", X=np.array([[0, 51, 255], [255, 255, 0]], dtype=np.uint8), y=[0, 1])
    X, _ = load(photo, data_dir=tmp_path)
    assert X.tolist() == [pytest.approx([-1, -0.6, 1]), [1, 1, -1]]


# files


def write(folder, X=TOY_X, y=TOY_Y, **others):
    np.savez(folder / "toy-telescope.npz", X=X, y=y, **others)


@pytest.mark.parametrize(
    "labels",
    [TOY_Y, np.array(["g", "h"])[TOY_Y], np.array(["'g'", "'h'"])[TOY_Y], TOY_Y.astype(float)],
    ids=["codes", "labels", "quoted labels", "float codes"],
)
def test_file_with_codes_or_labels(tmp_path, labels):
    write(tmp_path, y=labels)
    X, y = load(TOY, data_dir=tmp_path)
    assert X.dtype == np.float64
    assert y.dtype == np.int64
    assert np.array_equal(X, TOY_X)
    assert np.array_equal(y, TOY_Y)


def test_labels_that_are_numbers_but_do_not_start_at_zero(tmp_path):
    spec = Spec("ozone", 0, 3, {"1": 4, "2": 2}, 1, "Ozone")
    np.savez(tmp_path / "ozone.npz", X=TOY_X, y=TOY_Y + 1)
    assert np.array_equal(load(spec, data_dir=tmp_path)[1], TOY_Y)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"X": TOY_X[:, :2]}, r"must have 6 rows and 3 features; X has shape \(6, 2\)"),
        ({"X": TOY_X[:5], "y": TOY_Y[:5]}, "must have 6 rows"),
        ({"y": TOY_Y[:5]}, r"y has shape \(5,\)"),
        ({"y": [0, 0, 1, 1, 1, 0]}, r"must have \[4, 2\] rows of the classes \['g', 'h'\]; it has \[3, 3\]"),
        ({"y": list("ggxgxg")}, r"must have the classes \['g', 'h'\]; it has \['g', 'x'\]"),
        ({"X": np.where(TOY_X == 9, np.nan, TOY_X)}, "missing or infinite"),
        ({"X": TOY_X.astype(str).astype("U5") + "?"}, "not numbers"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path, content, message):
    write(tmp_path, **content)
    with pytest.raises(DatasetError, match=message):
        load(TOY, data_dir=tmp_path)


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"toy-telescope\.npz does not exist: put the set there, or omit data_dir"):
        load(TOY, data_dir=tmp_path)
    path = tmp_path / "toy-telescope.npz"
    np.savez(path, X=TOY_X)
    with pytest.raises(DatasetError, match="must hold the arrays X and y"):
        load(TOY, data_dir=tmp_path)
    path.write_bytes(b"PK\x03\x04 this is no archive")
    with pytest.raises(DatasetError, match="cannot be read"):
        load(TOY, data_dir=tmp_path)
    with path.open("wb") as stream:
        np.save(stream, TOY_X)
    with pytest.raises(DatasetError, match="cannot be read"):
        load(TOY, data_dir=tmp_path)


def test_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "toy-telescope.npz", X=np.array([{"code": 1}], dtype=object), y=TOY_Y)
    with pytest.raises(DatasetError, match="cannot be read as a file of plain NumPy arrays"):
        load(TOY, data_dir=tmp_path)


# OpenML, played by a server on this machine


def toy_arff(rows=TOY_X, labels="gghghg"):
    lines = ["% made up for this test", "@RELATION toy", "@ATTRIBUTE ID INTEGER"]
    lines += [f"@ATTRIBUTE {name} REAL" for name in ("fLength", "fWidth", "fSize")]
    lines += ["@ATTRIBUTE class {g,h}", "@DATA"]
    lines += [
        f"{i + 1},{','.join(map(str, row))},{label}" for i, (row, label) in enumerate(zip(rows, labels, strict=True))
    ]
    return "\n".join(lines) + "\n"


class OpenMLOnThisMachine:
    """Answers the four requests of scikit-learn's reader for data set 4242 in OpenML's form."""

    def __init__(self, arff, md5=None):
        self.requests = []
        self.arff = arff.encode()
        self.md5 = md5 or hashlib.md5(self.arff).hexdigest()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                body = outer.answer(self.path)
                if body is None:
                    self.send_response(412)  # OpenML's "no such data set"
                    body = json.dumps({"error": {"code": "111", "message": "Unknown dataset"}}).encode()
                else:
                    self.send_response(200)
                self.send_header("Content-Encoding", "gzip")
                body = gzip.compress(body)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, path):
        if path == "/data/v1/download/7/toy.arff":
            return self.arff
        found = {
            "/api/v1/json/data/4242": {"data_set_description": self.description()},
            "/api/v1/json/data/features/4242": {"data_features": {"feature": self.features()}},
            "/api/v1/json/data/qualities/4242": {
                "data_qualities": {"quality": [{"name": "NumberOfInstances", "value": "6.0"}]}
            },
        }.get(path)
        return None if found is None else json.dumps(found).encode()

    def description(self):
        return {
            "id": "4242",
            "name": "toy-telescope",
            "version": "1",
            "description": "Made up.",
            "format": "ARFF",
            "status": "active",
            "file_id": "7",
            "url": f"{self.address}/data/v1/download/7/toy.arff",
            "default_target_attribute": "class",
            "md5_checksum": self.md5,
        }

    def features(self):
        kinds = [("ID", "numeric"), ("fLength", "numeric"), ("fWidth", "numeric"), ("fSize", "numeric")]
        listed = [
            {
                "index": str(i),
                "name": name,
                "data_type": kind,
                "is_target": "false",
                "is_ignore": "false",
                "is_row_identifier": "false",
                "number_of_missing_values": "0",
            }
            for i, (name, kind) in enumerate(kinds)
        ]
        target = listed[0] | {"index": "4", "name": "class", "data_type": "nominal", "is_target": "true"}
        return [*listed, target | {"nominal_value": ["g", "h"]}]


@pytest.fixture
def openml(monkeypatch):
    """Start a server and point scikit-learn's reader at it."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    started = []

    def start(**options):
        server = OpenMLOnThisMachine(**({"arff": toy_arff()} | options))
        started.append(server)
        point_at(monkeypatch, server.address)
        return server

    yield start
    for server in started:
        server.close()


def point_at(monkeypatch, address):
    for name in ("_DATA_INFO", "_DATA_FEATURES", "_DATA_QUALITIES"):
        url = getattr(_openml, name)
        _, slash, path = url.partition("/api/")
        monkeypatch.setattr(_openml, name, address + slash + path)


@pytest.mark.slow
@pytest.mark.parametrize("parser", ["pandas", "liac-arff"])
def test_openml_is_read_checked_and_kept(openml, tmp_path, monkeypatch, parser):
    if parser == "liac-arff":
        monkeypatch.setitem(sys.modules, "pandas", None)  # as in an installation without the extras
    server = openml()
    X, y = load(TOY, cache_dir=tmp_path)
    assert np.array_equal(X, TOY_X)  # without the ID column
    assert np.array_equal(y, TOY_Y)
    asked = len(server.requests)
    assert asked == 4
    again = load(TOY, cache_dir=tmp_path)
    assert len(server.requests) == asked
    assert np.array_equal(again[0], X)
    assert np.array_equal(again[1], y)


@pytest.mark.slow
def test_another_version_at_openml_is_refused_and_not_kept(openml, tmp_path):
    openml(arff=toy_arff(labels="gghhhg"))
    with pytest.raises(DatasetError, match=r"must have \[4, 2\] rows"):
        load(TOY, cache_dir=tmp_path)
    assert not (tmp_path / "fcac" / "toy-telescope.npz").exists()


@pytest.mark.slow
def test_a_damaged_download_is_refused(openml, tmp_path):
    openml(md5="0" * 32)
    with pytest.raises(DatasetError, match="md5 checksum"):
        load(TOY, cache_dir=tmp_path)


@pytest.mark.slow
def test_an_unknown_id_is_named(openml, tmp_path):
    openml()
    gone = Spec("gone", 4243, 3, {"g": 4, "h": 2}, 1, "Gone")
    with pytest.raises(DatasetError, match=r"OpenML's answer for gone \(id 4243\) cannot be used"):
        load(gone, cache_dir=tmp_path)


def test_without_a_connection_the_error_says_what_to_do(monkeypatch, tmp_path):
    with socket.socket() as free:  # a port on which nothing listens
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # scikit-learn waits between its attempts
    point_at(monkeypatch, address)
    with pytest.raises(DatasetError, match=r"could not be downloaded .* Put toy-telescope\.npz .*--data-dir"):
        load(TOY, cache_dir=tmp_path)
