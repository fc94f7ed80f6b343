"""Rows from PostgreSQL: peak memory, and time beside `COPY` to a CSV file.

    python benchmarks/from_postgresql.py ADDRESS [--rows N] [--columns D]

ADDRESS is a database in which a table ``fcac_rows`` may be made and dropped, as in
``postgresql:///postgres?host=/tmp/socket``. Each measurement is a process of its own; its memory is the peak of its
resident set. `copy` is psql's ``\\copy`` to a CSV file on this machine; `read` is all rows as numbers; `fit` is
`fcac fit`, which also condenses and clusters them.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from adbc_driver_postgresql import dbapi

READ = """
import sys
from fcac.tables import ReadOptions, open_tables
tables = open_tables([sys.argv[1]], options=ReadOptions(query=sys.argv[2]))
print(sum(len(rows) for _, rows in tables.pieces()))
"""


def make(address: str, rows: int, columns: int) -> None:
    """Make a table of Gaussian groups."""
    # the sum of four uniform numbers is nearly normal; 20 groups
    noise = "(random() + random() + random() + random() - 2)"
    cells = ", ".join(f"({noise} + (i * {7 + 3 * j} % 20))::float8 as x{j}" for j in range(columns))
    with dbapi.connect(address, autocommit=True) as connection:
        for statement in (
            "drop table if exists fcac_rows",
            f"create unlogged table fcac_rows as select {cells} from generate_series(1, {rows}) i",
        ):
            with connection.cursor() as cursor:
                cursor.execute(statement)


def measure(name: str, command: list[str]) -> None:
    """Run a command and print its time, CPU time and peak memory."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if status:
        raise SystemExit(f"{name} failed")
    print(f"{name:6} {seconds:8.1f} s {cpu:8.1f} s of CPU {usage.ru_maxrss / 1024:8.0f} MB", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=10)
    options = parser.parse_args()
    make(options.address, options.rows, options.columns)
    query = "select * from fcac_rows"
    print(f"{options.rows:,} rows of {options.columns} columns")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "rows.csv")
        measure("copy", ["psql", options.address, "-q", "-c", f"\\copy fcac_rows to '{table}' csv header"])
        print(f"       {table.stat().st_size / 1e6:.0f} MB of CSV")
        table.unlink()
        measure("read", [sys.executable, "-c", READ, options.address, query])
        model = str(Path(folder, "model.fcac"))
        measure("fit", [sys.executable, "-m", "fcac", "fit", options.address, "--query", query, "--out", model])
    with dbapi.connect(options.address, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("drop table fcac_rows")


if __name__ == "__main__":
    main()
