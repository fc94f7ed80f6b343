"""``--engine spark``: the commands `fit`, `update` and `predict` on Apache Spark."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from fcac._text import counted, duration
from fcac.cli.learning import check_records, say_privacy
from fcac.cli.terminal import BadUse, say

_READERS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}


def open_frame(data: list[str], master: str | None) -> Any:
    """Open files or folders of any file system that Spark knows, as one frame."""
    from fcac.spark.session import one_line, session

    kinds = {_kind(path) for path in data}
    if len(kinds) > 1:
        raise BadUse(f"--engine spark reads files of one kind at a time; here are {', '.join(sorted(kinds))}")
    spark = session(master)
    reader = spark.read.options(header=True, inferSchema=True) if kinds == {"csv"} else spark.read
    with one_line():
        return reader.format(kinds.pop()).load(data)


def _kind(path: str) -> str:
    suffix = Path(path.rstrip("/*")).suffix.lower()
    return _READERS.get(suffix, "parquet")  # a folder of a lake


def fit_on_spark(
    data: list[str],
    master: str | None,
    out: Path,
    schema: Any,
    site_column: str | None,
    drop: list[str] | None,
    settings: dict[str, Any],
) -> None:
    """Learn the first round on Spark and write the model."""
    from fcac import save, spark

    check_records(settings["privacy"], settings["record_id"])
    started = time.monotonic()
    frame = open_frame(data, master).drop(*(drop or []))
    model = spark.fit(frame, schema, site_column, **settings)
    save(model, out)
    _summarise(model, time.monotonic() - started)
    say(f"Model: {out}")


def update_on_spark(model: Any, data: list[str], master: str | None, out: Path, record_id: str | None) -> None:
    """Learn the next round on Spark and write the model."""
    from fcac import save, spark

    check_records(model.privacy, record_id)
    started = time.monotonic()
    spark.update(model, open_frame(data, master), record_id=record_id)
    save(model, out)
    _summarise(model, time.monotonic() - started)
    say(f"Model: {out}")


def predict_on_spark(model: Any, data: list[str], master: str | None, out: Path, alpha: float | None) -> None:
    """Label rows on Spark and write them, with their labels, as Parquet files in a folder."""
    from fcac import spark
    from fcac.spark.session import one_line

    place = re.sub(r"^(\w+):/(?!/)", r"\1://", str(out))  # as a path, an address has lost a slash
    labelled = spark.predict(model, open_frame(data, master), alpha)
    with one_line():
        labelled.write.mode("error").parquet(place)
    say(f"Labels: {place}")


def _summarise(model: Any, seconds: float) -> None:
    rows = sum(int(item.counts.sum()) for item in model.server_.log[-1])
    about = "" if model.privacy is None else "about "
    say(
        f"Round {model.n_rounds_}: {about}{counted(rows, 'row')} of {counted(model.n_features_in_, 'feature')} behind "
        f"the nodes of {counted(len(model.sites_), 'site')}, in {duration(seconds)}."
    )
    say(f"{counted(model.n_clusters_, 'cluster')} in {counted(len(model.server_.nodes), 'node')}.")
    say_privacy(model)
