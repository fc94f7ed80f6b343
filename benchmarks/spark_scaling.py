"""fcac on Spark: one executor and two, the same rows in one process, and Spark's own KMeans told k on the same frame.

    python benchmarks/spark_scaling.py FOLDER [--rows N] [--columns D] [--clusters K] [--pin] [--out FILE]

FOLDER receives the table as Parquet files (kept, so that a second run need not make them). Every executor has one core
by Spark's count; with ``--pin`` it and its Python workers may use no other, as in a container of one core.
Executors come from a standalone cluster on loopback and have compiled their kernels before the clock starts. CPU
seconds are those of the executors, Java and Python together; they say how fast an idle machine would be if this one is
busy.
Results are printed, and written to FILE as they come, one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.metrics import adjusted_rand_score

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from testing.spark_cluster import cluster, session_on

FILES = 16
TICK = os.sysconf("SC_CLK_TCK")

# Reads as few rows at a time as Spark does, in a process of its own, so that its memory can be told.
IN_PROCESS = """
import json, resource, sys, time
import pyarrow.dataset as dataset
from fcac import FCAC
table = dataset.dataset(sys.argv[1])
names = [name for name in table.schema.names if name != "group"]
n_jobs = int(sys.argv[2])
FCAC(n_jobs=n_jobs).fit(table.head(20_000, columns=names))
def pieces():
    for batch in table.to_batches(columns=names, batch_size=1 << 16):
        yield "one", batch.to_pandas().to_numpy()
before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
model = FCAC(n_jobs=n_jobs, random_state=0).play_stream(pieces(), len(names), names)
model.n_clusters_
seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
print(json.dumps({"seconds": seconds, "cpu": cpu, "peak_mb": after.ru_maxrss / 1024, "clusters": model.n_clusters_}))
"""


def make(folder: Path, rows: int, columns: int, clusters: int) -> None:
    """Write Gaussian clusters of unequal sizes and spreads, in shuffled order."""
    rng = np.random.default_rng(0)
    centres = rng.uniform(0, 10, (clusters, columns))
    spreads, shares = rng.uniform(0.3, 0.9, clusters), rng.dirichlet(np.full(clusters, 2.0))
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        y = rng.choice(clusters, rows // FILES, p=shares)
        x = centres[y] + spreads[y, None] * rng.normal(size=(len(y), columns))
        table = pa.table({**{f"x{j}": x[:, j] for j in range(columns)}, "group": y})
        pq.write_table(table, unfinished / f"part-{number:02d}.parquet")
    unfinished.rename(folder)


def cpu_of_executors() -> dict[int, float]:
    """Return the CPU seconds so far of every executor with its Python workers, by process id."""
    parents, times, executors = processes()
    started = with_workers(parents, executors)
    return {executor: sum(times[number] for number in own) for executor, own in started.items()}


def pin_executors() -> None:
    """Give every executor, with its Python workers, a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    parents, _, executors = processes()
    for core, own in zip(cores, with_workers(parents, executors).values(), strict=False):
        for number in own:
            for thread in Path(f"/proc/{number}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {core})


def with_workers(parents: dict[int, int], executors: list[int]) -> dict[int, list[int]]:
    """Return the process ids of every executor and of what it has started."""
    found: dict[int, list[int]] = {executor: [] for executor in executors}
    for number in parents:
        above = number
        while above in parents and above not in found:
            above = parents[above]
        if above in found:
            found[above].append(number)
    return found


def processes() -> tuple[dict[int, int], dict[int, float], list[int]]:
    """Return the parent and the CPU seconds of every process, and which are executors."""
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    executors: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                executor = b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes()
            except OSError:
                continue
            number = int(entry.name)
            parents[number] = int(fields[1])
            times[number] = sum(int(ticks) for ticks in fields[11:15]) / TICK  # its own, and of ended children
            if executor:
                executors.append(number)
    return parents, times, executors


class Clock:
    """Wall time, CPU seconds of every executor and of the driver's Python."""

    def __enter__(self) -> Clock:
        self._at = time.monotonic(), cpu_of_executors(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        started, before, own = self._at
        cpu = [round(seconds - before.get(number, 0.0), 1) for number, seconds in cpu_of_executors().items()]
        self.taken = {
            "seconds": time.monotonic() - started,
            "cpu": round(sum(cpu), 1),
            "cpu_by_executor": cpu,
            "driver_cpu": time.process_time() - own,
        }


def some_rows(folder: Path) -> tuple[Any, Any]:
    """Return rows, and their groups, by which results are compared."""
    rows = pq.read_table(folder / "part-00.parquet").slice(0, 200_000).to_pandas()
    return rows.pop("group"), rows


def on_spark(table: Any, folder: Path, n_executors: int, pin: bool, tell: Any) -> None:
    """Measure fitting, and labelling a tenth of the rows."""
    from fcac import spark as fcac_spark

    frame = table.drop("group")
    # starts Python workers, which compile their kernels
    fcac_spark.fit(frame.limit(40_000).repartition(2 * n_executors), random_state=0)
    if pin:
        pin_executors()
    with Clock() as clock:
        model = fcac_spark.fit(frame, random_state=0)
        found = model.n_clusters_
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    truth, rows = some_rows(folder)
    tell(
        "fcac on Spark",
        executors=n_executors,
        pinned=pin,
        **clock.taken,
        partitions=frame.rdd.getNumPartitions(),
        driver_peak_mb=round(peak),
        clusters=int(found),
        ari=adjusted_rand_score(truth, model.predict(rows)),
    )
    with Clock() as clock:
        fcac_spark.predict(model, frame.sample(0.1, seed=0)).groupBy("label").count().collect()
    tell("predict on Spark, a tenth of the rows", executors=n_executors, **clock.taken)


def by_kmeans(table: Any, folder: Path, n_executors: int, clusters: int, tell: Any) -> None:
    """Measure Spark's own KMeans on the same frame, kept in memory, which it reads again and again."""
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.feature import VectorAssembler

    frame = table.drop("group")
    assemble = VectorAssembler(inputCols=frame.columns, outputCol="features")
    KMeans(k=3, seed=0).fit(assemble.transform(frame.limit(40_000)))
    with Clock() as clock:
        means = KMeans(k=clusters, seed=0).fit(assemble.transform(frame).select("features").persist())
    centres = np.array(means.clusterCenters())
    truth, rows = some_rows(folder)
    nearest = ((centres**2).sum(axis=1) - 2 * rows.to_numpy() @ centres.T).argmin(axis=1)
    ari = adjusted_rand_score(truth, nearest)
    iterations = means.summary.numIter
    tell("pyspark.ml KMeans told k", executors=n_executors, **clock.taken, iterations=iterations, ari=ari)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pin", action="store_true", help="a core for each executor, and no other")
    parser.add_argument("--only", default="process,spark,kmeans", help="what to measure")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if not given.folder.exists():
        make(given.folder, given.rows, given.columns, given.clusters)

    def tell(what: str, **measured: Any) -> None:
        line = {"what": what, "rows": given.rows, "columns": given.columns, **measured, "load": os.getloadavg()[0]}
        line = {name: round(value, 3) if isinstance(value, float) else value for name, value in line.items()}
        print(json.dumps(line), flush=True)
        if given.out is not None:
            with given.out.open("a") as stream:
                stream.write(json.dumps(line) + "\n")

    asked = given.only.split(",")
    for n_jobs in given.executors if "process" in asked else ():
        command = [sys.executable, "-c", IN_PROCESS, str(given.folder), str(n_jobs)]
        taken = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        tell("fcac in one process", cores=n_jobs, **taken)
    for n_executors in given.executors if "spark" in asked or "kmeans" in asked else ():
        with cluster(n_executors, "5g") as address, session_on(address, "4g", quick=False) as session:
            table = session.read.parquet(given.folder.as_uri())
            if "spark" in asked:
                on_spark(table, given.folder, n_executors, given.pin, tell)
            if "kmeans" in asked and n_executors == max(given.executors):
                by_kmeans(table, given.folder, n_executors, given.clusters, tell)


if __name__ == "__main__":
    main()
