"""A real standalone Spark cluster on loopback: a master and two workers, from pyspark's own files."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from testing.waiting import wait_until

MISSING = (
    "Spark's tests need pyspark: make test-spark"
    if find_spec("pyspark") is None
    else "Spark's tests need a Java runtime"
    if which("java") is None
    else None
)

# Short-lived processes of Java are not worth its optimising compiler, which takes more time than it saves.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """Return the environment of Spark's processes; executors import this very package."""
    import pyspark

    home = Path(pyspark.__file__).parent
    return os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(
            [str(_ROOT / "src"), str(_ROOT / "tests"), str(home.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def cluster(n_workers: int = 2, memory: str = "1g") -> Iterator[str]:
    """Run a master and workers of one core each; yield the master's address."""
    env = environment() | {"SPARK_DAEMON_JAVA_OPTS": _QUICK, "SPARK_DAEMON_MEMORY": "256m"}
    program = str(Path(env["SPARK_HOME"]) / "bin" / "spark-class")
    port = _free_port()
    address = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:

        def start(name: str, *arguments: str) -> Path:
            log = Path(folder) / f"{name}.log"
            with log.open("wb") as stream:
                started.append(
                    subprocess.Popen([program, *arguments], env=env, stdout=stream, stderr=subprocess.STDOUT)
                )
            return log

        deploy = "org.apache.spark.deploy"
        master = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(_free_port()))
        try:
            log = start("master", f"{deploy}.master.Master", *master)
            wait_until(lambda: "New state: ALIVE" in log.read_text("utf-8", "replace"), started[0], 0.1)
            for number in range(n_workers):
                size = ("--cores", "1", "--memory", memory, "--webui-port", str(_free_port()), "--work-dir", folder)
                start(f"worker-{number}", f"{deploy}.worker.Worker", "--host", "127.0.0.1", *size, address)
            wait_until(
                # a worker that is slow to hear back registers twice
                lambda: (
                    len(set(re.findall(r"Registering worker (\S+)", log.read_text("utf-8", "replace")))) == n_workers
                ),
                started[0],
                0.1,
            )
            yield address
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                process.wait(60)


@contextmanager
def session_on(address: str, memory: str = "512m", *, quick: bool = True) -> Iterator[Any]:
    """Start a session whose executors have one core and little memory each.

    With `quick`, Java starts faster and computes more slowly.
    """
    from pyspark.sql import SparkSession

    env = environment()
    os.environ.update({key: env[key] for key in ("SPARK_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON")})
    builder = SparkSession.builder.master(address).appName("fcac tests")
    settings = {
        "spark.executor.memory": memory,
        "spark.executorEnv.PYTHONPATH": env["PYTHONPATH"],
        "spark.executorEnv.OMP_NUM_THREADS": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "3",
        "spark.python.daemon.module": "testing.spark_daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.network.timeout": "600s",
        "spark.executor.heartbeatInterval": "60s",
    }
    if quick:
        settings |= {f"spark.{part}.extraJavaOptions": _QUICK for part in ("driver", "executor")}
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()
