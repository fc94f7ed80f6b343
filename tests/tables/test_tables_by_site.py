"""Tables in: formats, sites, batches, and errors that name file, column and count but no value."""

from __future__ import annotations

import gzip
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fcac import FCAC
from fcac.tables import (
    DataError,
    RequestError,
    Schema,
    delimited,
    open_tables,
    site_from_text,
    table_file,
)
from fcac.tables.draft import draft_schema
from fcac.tables.schema import Column
from testing.data import write_table

NAMES = ["a", "b", "c"]


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(500, 3))


def write(path, rows, **more):
    return write_table(path, rows, NAMES[: rows.shape[1]], **more)


def joined(tables):
    """All rows of every site, in order."""
    found = {}
    for site, block in tables.pieces():
        assert block.dtype == np.float64
        assert block.flags.c_contiguous
        found.setdefault(site, []).append(block)
    return {site: np.concatenate(blocks) for site, blocks in found.items()}


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(table_file, "_BATCH_BYTES", 8 * 3 * 64)
    monkeypatch.setattr(delimited, "_CSV_BLOCK", 2048)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather", ".npz"])
def test_every_format_gives_the_same_rows(tmp_path, rows, ending, small_batches):
    tables = open_tables([write(tmp_path / f"north{ending}", rows)])
    assert tables.feature_names == NAMES
    assert tables.n_features == 3
    assert tables.n_rows == (None if ending == ".csv" else 500)
    assert (tables.n_read, tables.n_dropped) == (0, 0)
    pieces = list(tables.pieces())
    assert len(pieces) > 3
    assert {site for site, _ in pieces} == {"north"}
    np.testing.assert_allclose(np.concatenate([block for _, block in pieces]), rows, rtol=1e-14)
    assert tables.n_read == 500


def test_a_second_pass_gives_the_same(tmp_path, rows):
    tables = open_tables([write(tmp_path / "x.parquet", rows, site=np.arange(500) % 3)], site_column="site")
    first, second = joined(tables), joined(tables)
    assert first.keys() == second.keys() == {0, 1, 2}
    assert all((first[site] == second[site]).all() for site in first)


def test_the_share_read_grows_to_one(tmp_path, rows, small_batches):
    paths = [write(tmp_path / f"{i}{ending}", rows) for i, ending in enumerate((".csv", ".parquet", ".npz"))]
    seen = []
    for _ in open_tables(paths).pieces(lambda done, share: seen.append((done, share))):
        pass
    assert seen == sorted(seen)
    assert seen[-1] == (1500, 1.0)


def test_other_separators_and_packed_files(tmp_path):
    (tmp_path / "semicolon.csv").write_text("a;b\n1;2.5\n3;4\n")
    (tmp_path / "tab.tsv").write_text("a\tb\n1\t2.5\n3\t4\n")
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2.5\n3,4\n"))
    found = joined(open_tables([tmp_path]))
    assert set(found) == {"packed", "semicolon", "tab"}
    assert all(block.tolist() == [[1.0, 2.5], [3.0, 4.0]] for block in found.values())


def test_whole_numbers_first_and_decimals_later(tmp_path, small_batches):
    (tmp_path / "x.csv").write_text("a,b\n" + "1,true\n" * 2000 + "1.5,false\n")
    block = joined(open_tables([tmp_path / "x.csv"]))["x"]
    assert block[-1].tolist() == [1.5, 0.0]
    assert block[0].tolist() == [1.0, 1.0]


def test_npz_without_names_with_labels_and_stored_by_column(tmp_path, rows):
    np.savez_compressed(tmp_path / "x.npz", X=np.asfortranarray(rows.astype(np.float32)), y=np.arange(500) % 4)
    tables = open_tables([tmp_path / "x.npz"])
    assert tables.feature_names == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(joined(tables)["x"], rows.astype(np.float32))


# ------------------------------------------------------------ sites


def test_a_directory_is_a_federation_and_its_subdirectories_are_sites(tmp_path, rows):
    for name in ("10.csv", "9.csv", "north.parquet"):
        write(tmp_path / name, rows[:10])
    (tmp_path / "west").mkdir()
    write(tmp_path / "west" / "monday.csv", rows[:10])
    write(tmp_path / "west" / "tuesday.npz", rows[10:30])
    (tmp_path / "README.md").write_text("not a table")
    (tmp_path / ".hidden.csv").write_text("not,ours\n")
    found = joined(open_tables([tmp_path]))
    assert list(found) == [9, 10, "north", "west"]
    assert len(found["west"]) == 30


def test_site_names_read_as_numbers_where_they_are():
    assert [site_from_text(t) for t in ("0", "12", "-3", "007", "1.5", "x1")] == [0, 12, -3, "007", "1.5", "x1"]


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_a_site_column_divides_the_rows_in_their_order(tmp_path, rows, ending, small_batches):
    sites = np.random.default_rng(1).choice(["a", "b", "7"], size=500)
    tables = open_tables([write(tmp_path / f"all{ending}", rows, site=sites)], site_column="site")
    assert tables.feature_names == NAMES
    assert tables.has_sites
    found = joined(tables)
    assert set(found) == {"a", "b", 7}
    for name, block in found.items():
        np.testing.assert_allclose(block, rows[sites == str(name)], rtol=1e-14)


def test_a_categorical_and_a_whole_number_site_column(tmp_path, rows):
    numbers = np.arange(500) % 3
    pq.write_table(
        pa.table({"a": rows[:, 0], "site": pa.array(numbers.astype(str)).dictionary_encode()}), tmp_path / "x.parquet"
    )
    pq.write_table(pa.table({"a": rows[:, 0], "site": numbers}), tmp_path / "y.parquet")
    for name in ("x", "y"):
        assert set(joined(open_tables([tmp_path / f"{name}.parquet"], site_column="site"))) == {0, 1, 2}


def test_a_site_may_be_called_na(tmp_path):
    (tmp_path / "x.csv").write_text("a,site\n1,NA\n2,EU\n3,null\n")
    assert set(joined(open_tables([tmp_path / "x.csv"], site_column="site"))) == {"NA", "EU", "null"}


def test_all_rows_can_belong_to_one_site(tmp_path, rows):
    paths = [write(tmp_path / "x.csv", rows), write(tmp_path / "y.csv", rows)]
    assert {site: len(block) for site, block in joined(open_tables(paths, site=5)).items()} == {5: 1000}


def test_record_ids_come_in_the_order_of_the_pieces(tmp_path, rows, small_batches):
    sites, ids = np.array(["s", "t"])[np.arange(500) % 2], np.arange(500)
    path = write(tmp_path / "x.parquet", rows, site=sites, person=ids)
    tables = open_tables([path], site_column="site", record_id_column="person")
    joined(tables)
    assert tables.record_ids == {"s": list(range(0, 500, 2)), "t": list(range(1, 500, 2))}


def test_streaming_gives_the_model_that_arrays_give(tmp_path, rows, small_batches):
    write(tmp_path / "x.parquet", rows)
    write(tmp_path / "y.csv", rows[::-1])
    tables = open_tables([tmp_path])
    streamed = FCAC(random_state=0).play_stream(tables.pieces(), tables.n_features, tables.feature_names)
    whole = FCAC(random_state=0).fit({"x": rows, "y": np.ascontiguousarray(rows[::-1])})
    np.testing.assert_array_equal(streamed.server_.nodes, whole.server_.nodes)
    assert streamed.feature_names_in_.tolist() == NAMES


# ------------------------------------------------------------ schema


def test_a_schema_chooses_orders_and_drops_rows(tmp_path):
    (tmp_path / "x.csv").write_text("name,b,a\nu,1,10\nv,,20\nw,3,30\n")
    tables = open_tables([tmp_path / "x.csv"], Schema([Column("a"), Column("b", missing="drop")]))
    assert joined(tables)["x"].tolist() == [[10.0, 1.0], [30.0, 3.0]]
    assert (tables.n_read, tables.n_dropped) == (3, 1)


def test_categories_are_read_as_text_from_csv(tmp_path):
    (tmp_path / "x.csv").write_text("grade,a\n1,5\n2,6\n1,7\n")
    schema = Schema([Column("grade", categories=("1", "2")), "a"])
    tables = open_tables([tmp_path / "x.csv"], schema)
    assert tables.feature_names == ["grade=1", "grade=2", "a"]
    assert schema.unscaled(joined(tables)["x"]).tolist() == [[1, 0, 5], [0, 1, 6], [1, 0, 7]]


def test_dropped_rows_keep_sites_and_ids_in_step(tmp_path):
    (tmp_path / "x.csv").write_text("site,id,a\np,i1,1\nq,i2,\np,i3,3\nq,i4,4\n")
    tables = open_tables(
        [tmp_path / "x.csv"], Schema([Column("a", missing="drop")]), site_column="site", record_id_column="id"
    )
    assert {site: block.tolist() for site, block in joined(tables).items()} == {"p": [[1.0], [3.0]], "q": [[4.0]]}
    assert tables.record_ids == {"p": ["i1", "i3"], "q": ["i4"]}


def test_a_draft_of_a_schema_is_a_schema_and_says_nothing_exact(tmp_path):
    (tmp_path / "x.csv").write_text("age,name,dose\n37.25,Ann,\n71.5,Bob,0.0123\n")
    text = draft_schema([tmp_path / "x.csv"])
    schema = Schema.from_toml(text)
    assert schema.columns == ["age", "name", "dose"]
    assert schema.bounds is None
    assert 'name = { kind = "category" }    # text with few values; 2 levels' in text
    assert "1 missing" in text
    for value in ("37.25", "71.5", "0.0123", "Ann", "Bob"):
        assert value not in text
    bare = draft_schema([tmp_path / "x.csv"], apart=["name"], suggestions=False)
    assert "seen" not in bare
    assert "name" not in bare[bare.index("[columns]") :]
    with pytest.raises(RequestError, match="no column 'nose'"):
        draft_schema([tmp_path / "x.csv"], apart=["nose"])


# ------------------------------------------------------------ errors


def test_missing_values_are_counted_over_all_files_and_leave_a_model_as_it_was(tmp_path, small_batches):
    (tmp_path / "ok.csv").write_text("a,b\n" + "1,2\n" * 1000)
    (tmp_path / "x.csv").write_text("a,b\n" + "1,2\n" * 500 + ",2\n" * 3 + "1,\n1,2\n" * 400 + ",\n")
    (tmp_path / "y.csv").write_text("a,b\n,1\n")
    model = FCAC(random_state=0).fit(np.random.default_rng(0).normal(size=(100, 2)))
    before = model.server_.nodes.copy()
    tables = open_tables([tmp_path])
    with pytest.raises(DataError, match=r"x\.csv \(and in 1 more files\).*a \(4\), b \(401\) of 1,304 rows"):
        model.play_stream(tables.pieces(), 2)
    np.testing.assert_array_equal(model.server_.nodes, before)
    assert model.n_rounds_ == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n1,SECRET\n", r"column b \(text\) is not numeric.*--drop b.*schema"),
        ("a,b\n1,2\nSECRET,3\n" * 1, r"column a \(text\) is not numeric"),
        ("a,b\n1,2\n1,2,SECRET\n", "line 3 has 3 cells, but the first line names 2"),
        ("a,b\n1,2\nSECRET\n", "line 3 has 1 cells"),
        ("a,a\n1,2\n", "column a appears more than once"),
        ("a,\n0,2\n", "column 2 has no name: write one into the first line"),
        ("1.5,2.5\n1,2\n", r"first line has numbers.*--read header=no"),
        ("", "is empty"),
        ("a,b\n", "no rows"),
        ("a,day\n1,2024-01-31\n", r"day \(dates or times\) is not numeric"),
    ],
)
def test_a_bad_csv_file_is_explained_without_quoting_it(tmp_path, content, words):
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=words) as caught:
        joined(open_tables([path]))
    assert "SECRET" not in str(caught.value)
    assert "x.csv" in str(caught.value)


def test_text_far_down_a_column_of_numbers_is_counted_and_not_quoted(tmp_path, small_batches):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "1,2\n" * 2000 + "SECRET,2\n" * 3 + "1,SECRET\n")
    with pytest.raises(DataError, match=r"x\.csv: text where numbers.*column a \(3\), b \(1\)") as caught:
        joined(open_tables([path]))
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".npz"])
def test_a_file_that_is_cut_off_is_said_to_be(tmp_path, rows, ending):
    path = write(tmp_path / f"x{ending}", rows)
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(DataError, match="cannot be read"):
        joined(open_tables([path]))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"Y": np.ones(3)}, "no array X"),
        ({"X": np.ones(3)}, "two dimensions"),
        ({"X": np.array([["a"]])}, "table of numbers"),
        ({"X": np.ones((3, 2)), "columns": np.array(["a"])}, "names 1 columns, but X has 2"),
    ],
)
def test_a_bad_npz_file(tmp_path, arrays, words):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=words):
        open_tables([tmp_path / "x.npz"])


def test_no_pickle_is_opened(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.array([[{}]], dtype=object))
    with pytest.raises(DataError):
        open_tables([tmp_path / "x.npz"])


def test_files_must_have_the_same_columns(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    for content, words in (
        ("a\n1\n", r"y\.csv has no column b"),
        ("a,b,c\n1,2,3\n", r"y\.csv has columns that .*x\.csv does not have: c"),
        ("a,b\n1,u\n", r"y\.csv: column b has text"),
    ):
        (tmp_path / "y.csv").write_text(content)
        with pytest.raises(DataError, match=words):
            open_tables([tmp_path / "x.csv", tmp_path / "y.csv"])
    (tmp_path / "y.csv").write_text("b,a\n20,10\n")
    assert joined(open_tables([tmp_path]))["y"].tolist() == [[10.0, 20.0]]


def test_wishes_that_do_not_fit(tmp_path, rows):
    path = write(tmp_path / "x.csv", rows, site=["s"] * 500)
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep" / "x.csv", rows, site=["s"] * 500)
    cases = [
        ({"paths": [tmp_path / "none.csv"]}, "no file or directory"),
        ({"paths": []}, "at least one file"),
        ({"paths": [tmp_path / "empty"]}, "contains no table"),
        ({"paths": [tmp_path / "x.json"]}, "unknown kind of file"),
        ({"paths": [path], "site_column": "ward"}, r"has no column 'ward'; it has a, b, c, site"),
        ({"paths": [path], "drop": ["ward"]}, "has no column 'ward'"),
        ({"paths": [path], "site_column": "site", "site": "s"}, "only one of"),
        ({"paths": [path], "schema": Schema(["a"]), "drop": ["b"]}, "a schema says"),
        ({"paths": [path, tmp_path / "deep" / "x.csv"], "drop": ["site"]}, "would both be site x"),
    ]
    for arguments, words in cases:
        with pytest.raises(RequestError, match=words):
            joined(open_tables(**arguments))
    with pytest.raises(DataError, match="no column left"):
        open_tables([path], drop=["a", "b", "c"], site_column="site")


def test_rows_without_site_are_counted(tmp_path):
    (tmp_path / "x.csv").write_text("a,site\n1,s\n2,\n3,\n")
    with pytest.raises(DataError, match="2 rows have no site in column 'site'"):
        joined(open_tables([tmp_path / "x.csv"], site_column="site"))
    pq.write_table(pa.table({"a": [1.0], "site": [1.5]}), tmp_path / "y.parquet")
    with pytest.raises(DataError, match="text or whole numbers"):
        joined(open_tables([tmp_path / "y.parquet"], site_column="site"))


def test_all_rows_dropped_is_an_error(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,\n2,\n")
    with pytest.raises(DataError, match="each of the 2 rows"):
        joined(open_tables([tmp_path / "x.csv"], Schema(["a", Column("b", missing="drop")])))


def test_an_index_left_by_pandas_is_not_clustered_by(tmp_path):
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"a": [1.0, 2.0]}, index=[5, 9]).to_parquet(tmp_path / "x.parquet")
    assert open_tables([tmp_path / "x.parquet"]).feature_names == ["a"]


@pytest.mark.slow
def test_tables_are_read_without_scikit_learn():
    code = "import sys, fcac.tables, fcac.tables.draft; print([n for n in ('sklearn', 'scipy') if n in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
