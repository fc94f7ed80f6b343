"""Hospitals with OMOP databases: one query makes one row of each person, and no row leaves its hospital.

Run ``python examples/omop_hospitals.py [FOLDER]``. It writes three DuckDB files with the tables ``person``,
``condition_occurrence`` and ``measurement``, clusters the persons, writes the report ``omop.html``, and needs
``pip install 'fcac[sql]'``.

The query is in ``omop.sql`` and the meaning of its columns in ``omop.toml``. With a PostgreSQL database of your own,
the same is one command::

    fcac fit postgresql://host/omop --query examples/omop.sql --schema examples/omop.toml --out model.fcac
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from fcac import FCAC
from fcac.report import write_report
from fcac.tables import ReadOptions, Schema, open_tables

HERE = Path(__file__).parent
HOSPITALS = ("harbour", "hill", "valley")
HBA1C, SYSTOLIC, BMI = 3004410, 3004249, 3038553
DIABETES, HYPERTENSION, ASTHMA = 201826, 320128, 317009
# Three kinds of persons: share of women, year of birth, how often each condition, mean of each measurement.
KINDS = (
    (0.5, 1950, {DIABETES: 0.98}, {HBA1C: 9.0, SYSTOLIC: 130, BMI: 33}),
    (0.5, 1945, {HYPERTENSION: 0.98}, {HBA1C: 5.6, SYSTOLIC: 170, BMI: 27}),
    (0.6, 2000, {ASTHMA: 0.98}, {HBA1C: 5.2, SYSTOLIC: 115, BMI: 22}),
)
SPREADS = {HBA1C: 0.6, SYSTOLIC: 8.0, BMI: 2.0}


def make_tables(n: int, seed: int) -> tuple[dict[str, pa.Table], np.ndarray]:
    """Return the tables of one hospital, and the kind of each person."""
    random = np.random.default_rng(seed)
    kinds = random.choice(len(KINDS), p=random.dirichlet([3.0] * len(KINDS)), size=n)
    people, conditions, measurements = [], [], []
    for person, kind in enumerate(kinds, start=1):
        women, born, frequent, means = KINDS[kind]
        people.append((person, 8532 if random.random() < women else 8507, int(random.normal(born, 6))))
        conditions += [(person, concept) for concept, often in frequent.items() if random.random() < often]
        for concept, mean in means.items():
            # one measurement in five was never made, others several times
            for _ in range(random.integers(1, 4) if random.random() > 0.2 else 0):
                measurements.append((person, concept, float(random.normal(mean, SPREADS[concept]))))
    columns = {
        "person": (people, ["person_id", "gender_concept_id", "year_of_birth"]),
        "condition_occurrence": (conditions, ["person_id", "condition_concept_id"]),
        "measurement": (measurements, ["person_id", "measurement_concept_id", "value_as_number"]),
    }
    return {
        name: pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
        for name, (rows, names) in columns.items()
    }, kinds


def main(folder: Path) -> None:
    """Make three databases, cluster their persons, and print what sets the clusters apart."""
    # Three hospitals, each with a database of its own.
    import duckdb

    databases = folder / "omop"
    databases.mkdir(exist_ok=True)
    for seed, hospital in enumerate(HOSPITALS):
        path = databases / f"{hospital}.duckdb"
        path.unlink(missing_ok=True)
        with duckdb.connect(str(path)) as connection:
            for name, rows in make_tables(800, seed)[0].items():
                connection.register("rows", rows)
                connection.execute(f"create table {name} as select * from rows")
                connection.unregister("rows")

    # The query runs at each hospital; its rows become nodes there.
    schema = Schema.load(HERE / "omop.toml")
    query = (HERE / "omop.sql").read_text("utf-8")
    tables = open_tables([databases], schema, options=ReadOptions(query=query))
    model = FCAC(random_state=0).play_stream(tables.pieces(), tables.n_features, tables.feature_names, schema=schema)

    # What sets the clusters apart.
    print(f"{tables.n_read} persons at {len(HOSPITALS)} hospitals")
    print(model.summary())
    write_report(model, folder / "omop.html", title="Three hospitals with OMOP databases")
    print(f"Report: {folder / 'omop.html'}")


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
