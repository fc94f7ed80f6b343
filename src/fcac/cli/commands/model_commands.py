"""``fcac predict``, ``report``, ``inspect`` and ``export``: what a model is good for."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Annotated, Any

from fcac._text import counted, duration, listed
from fcac.cli import options as opt
from fcac.cli.learning import columns_of, load_model, schema_of, write_report
from fcac.cli.terminal import BadUse, Progress, note, say
from fcac.privacy.mechanism import NodeMechanism


def predict(
    model: opt.ModelPath,
    data: opt.Data,
    output: opt.Output,
    rows: opt.Rows,
    spark: opt.Spark,
    keep: opt.Keep = None,
    schema: opt.SchemaPath = None,
    alpha: opt.Alpha = None,
) -> None:
    """Label rows: cluster, distance to the nearest node, and whether the row is unlike anything seen.

    Writes one row per row read, in order: [bold]label[/bold], [bold]distance[/bold], [bold]novel[/bold]. The extension
    of the output file selects Parquet, Feather or CSV. Works with models and with exported codebooks.

    [bold]Examples[/bold]
    fcac predict model.fcac new.csv --out labels.parquet
    fcac predict codebook.fcac new.csv --out labels.csv --keep patient_id
    fcac predict --engine spark model.fcac hdfs://lake/visits --out hdfs://lake/labels
    fcac predict model.fcac new.csv --out labels.csv --alpha 0.001   [dim]one false alarm in 1,000 rows[/dim]
    """
    from fcac.cli.labeller import Labeller, LabelWriter
    from fcac.tables.schema import Schema

    out = output.check()
    known = load_model(model)
    if spark.wanted(keep=keep, site_column=rows.site_column, schema=schema, query=rows.query, read=rows.read):
        from fcac.cli.spark_engine import predict_on_spark

        predict_on_spark(known, data, spark.master, out, alpha)
        return
    tables = rows.open_for(known, data, None if schema is None else Schema.load(schema), keep=keep or [])
    labeller = Labeller(known, tables, alpha)
    started = time.monotonic()
    with Progress("labelling") as progress, LabelWriter(out, keep or [], tables) as writer:
        labeller.label_all(tables.batches(progress), writer)
    say(
        f"Labelled {counted(writer.n_rows, 'row')} in {duration(time.monotonic() - started)}: "
        f"{counted(writer.n_clusters, 'cluster')} found, {counted(writer.n_novel, 'row')} unlike anything seen "
        f"({writer.n_novel / max(1, writer.n_rows):.1%})."
    )
    if tables.n_dropped:
        say(f"{counted(tables.n_dropped, 'row')} with missing values have an empty label.")
    if tables.other:
        counts = listed([f"{name} ({count:,})" for name, count in tables.other.items()])
        note(f"note: values for which the model has no level count as other: {counts}")
    say(f"Labels: {out}")


def report(
    model: opt.ModelPath,
    output: opt.Output,
    rows: opt.Rows,
    data: Annotated[
        list[str] | None, opt.option("Rows for novelty and exact sizes (repeatable); never used with privacy.")
    ] = None,
    title: Annotated[str | None, opt.option("Heading of the report.")] = None,
) -> None:
    """Write a report: one HTML file that works offline and contains no rows.

    [bold]Examples[/bold]
    fcac report model.fcac --out report.html
    fcac report model.fcac --data clinics/ --out report.html --title "Four clinics"
    """
    out = output.check()
    known = load_model(model)
    if not hasattr(known, "server_"):
        raise BadUse(f"{model} is a {type(known).__name__}: a report needs a model made by `fcac fit`")
    tables = rows.open_for(known, data) if data else None
    if data and known.privacy is not None:
        note("note: the model has privacy, so nothing in the report is computed from rows; --data is not used")
    write_report(known, out, tables, title)
    say(f"Report: {out}")


def export(
    model: opt.ModelPath,
    output: opt.Output,
    share_nodes: Annotated[
        bool,
        opt.option(
            "With --server communities: export the sites' own nodes, which can be raw records.", "--share-nodes"
        ),
    ] = False,
) -> None:
    """Write only what `predict` needs: labelled nodes, without sites, counts or contributions.

    [bold]Example[/bold]
    fcac export model.fcac --out codebook.fcac
    """
    from fcac import save

    out = output.check()
    known = load_model(model)
    if not hasattr(known, "export"):
        raise BadUse(f"{model} is a {type(known).__name__}, which contains nothing that could be left out")
    book = known.export(share_nodes=share_nodes)
    save(book, out)
    clusters = counted(len(set(book.labels.tolist())), "cluster")
    say(f"Exported {counted(len(book.nodes), 'labelled node')} of {clusters}; no site states, no contributions.")
    if not isinstance(known.privacy, NodeMechanism):
        note("note: without --epsilon, a node can still be close to a record; see the privacy guide before sharing it")
    say(f"Codebook: {out}")


def inspect(model: opt.ModelPath, as_json: opt.AsJson = False) -> None:
    """Describe the contents of a model file, and say whether it may be shared.

    [bold]Examples[/bold]
    fcac inspect model.fcac
    fcac inspect model.fcac --json
    """
    facts = _facts(model)
    if as_json:
        say(json.dumps(facts, indent=2))
    else:
        _show(facts)


def _facts(path: Path) -> dict[str, Any]:
    """Return a description of a model file as plain values."""
    from fcac import persistence

    model = load_model(path)
    schema = schema_of(model)
    meta, _ = persistence.read(path, kind="model")
    facts: dict[str, Any] = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "holds": type(model).__name__,
        "versions": meta.get("versions", {}),
        "columns": columns_of(model) if schema is None else schema.columns,
        "features": columns_of(model),
        "schema": None if schema is None else schema.to_dict(),
        "site_states": False,
        "contributions": 0,
    }
    if hasattr(model, "server_"):
        facts.update(_federation(model))
    elif hasattr(model, "nearest"):
        facts.update(n_features=model.n_features, nodes=len(model.nodes), clusters=len(set(model.labels.tolist())))
    else:
        facts.update(
            n_features=int(model.n_features_in_),
            nodes=len(model.nodes_),
            clusters=int(model.n_clusters_),
            rows_seen=int(model.n_samples_seen_),
        )
    return facts


def _federation(model: Any) -> dict[str, Any]:
    from fcac._sites import in_reading_order

    server = model.server_
    sites = []
    latest = server.latest()
    for name in in_reading_order(latest):
        item = latest[name]
        rounds = sum(entry.site == name for batch in server.log for entry in batch)
        sites.append(
            {
                "site": name,
                "rounds": rounds,
                "nodes": len(item.nodes),
                "records": int(item.counts.sum()),
                "privacy": item.privacy,
            }
        )
    return {
        "server": server.kind,
        "n_features": int(model.n_features_in_),
        "rounds": int(model.n_rounds_),
        "nodes": len(server.nodes),
        "clusters": int(model.n_clusters_),
        "verdict": _verdict(model),
        "scaling": server.scaling.sentence,
        "seed": server.random_state,
        "sites": sites,
        "site_states": bool(model.sites_),
        "contributions": sum(len(batch) for batch in server.log),
        "privacy": None if model.privacy is None else _dearest(sites),
        "novelty": _novelty(model),
    }


def _novelty(model: Any) -> dict[str, Any] | None:
    """What usual rows were measured with, if the model was calibrated; None if not."""
    measured = model._measured
    if measured is None:
        return None
    return {"epsilon": measured.epsilon, "delta": measured.delta, "sites": measured.n_sites}


def _dearest(sites: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the statement of the site that has spent most; one that names no cost counts as the dearest of all."""

    def spent(site: dict[str, Any]) -> float:
        said = site["privacy"]
        return float(said.get("spent", said.get("epsilon", math.inf)))

    found: dict[str, Any] = max(sites, key=spent)["privacy"]
    return found


def _verdict(model: Any) -> dict[str, Any]:
    """How many clusters, how sure, and what to beware of, as the report and `summary()` have it."""
    found = model.verdict_
    return {
        "headline": found.headline,
        "probability": found.probability,
        "alternatives": [{"clusters": a.n_clusters, "probability": a.probability} for a in found.alternatives],
        "sure": {str(k): round(value, 3) for k, value in found.of_cluster.items()},
        "cautions": [{"kind": c.kind, "serious": c.serious, "text": c.text} for c in found.cautions],
    }


def _show(facts: dict[str, Any]) -> None:
    """Print a description as text."""
    from fcac.privacy.mechanisms import may_be_shared
    from fcac.privacy.statements import in_a_line

    words = {
        "FCAC": "a model that can go on learning",
        "Codebook": "a codebook: labelled nodes, for predict only",
    }
    say(f"{facts['file']}: {words.get(facts['holds'], 'a ' + facts['holds'] + ' model')}, {_size(facts['bytes'])}")
    if "verdict" in facts:
        say(f"  {facts['verdict']['headline']}")
        for caution in facts["verdict"]["cautions"]:
            say(f"  - {caution['text']}")
    server = f" ({facts['server']} server)" if "server" in facts else ""
    say(f"  clusters     {facts['clusters']:,} in {counted(facts['nodes'], 'node')}{server}")
    if "rounds" in facts:
        say(f"  rounds       {facts['rounds']:,}")
    known = facts["columns"]
    say(f"  columns      {facts['n_features'] if known is None else len(known):,}{_names(known)}")
    if facts.get("scaling"):
        say(f"  scale        {facts['scaling']}")
    if facts["schema"] is not None:
        say("  schema       included; update and predict use it")
    if "sites" in facts:
        say(f"  privacy      {in_a_line(facts['privacy'])}")
        _show_novelty(facts["novelty"])
        _show_sites(facts["sites"])
    made_by = facts["versions"].get("fcac")
    say(f"  written by   fcac {made_by}" if made_by else "  written by   an unknown version")
    if facts["site_states"] or facts["contributions"]:
        say(
            f"  inside       {'states of all sites and ' if facts['site_states'] else ''}"
            f"{counted(facts['contributions'], 'contribution')}, for update and forget."
        )
        if not may_be_shared(facts["privacy"]):
            say("               Nodes can be raw records: do not share this file; `fcac export` makes one to share.")
    else:
        say("  inside       no site states, no contributions")


def _show_novelty(measured: dict[str, Any] | None) -> None:
    if measured is None:
        return
    if measured["epsilon"] is None:
        say("  novelty      measured on rows given for it")
    else:
        # the statement of a contribution was written when it was sent, before distances were released
        sites = counted(measured["sites"], "site")
        say(f"  novelty      measured on distances released by {sites} for eps = {measured['epsilon']:g} more each")


def _show_sites(sites: list[dict[str, Any]], most: int = 20) -> None:
    width = max(4, *(len(str(site["site"])) for site in sites[:most]))
    say(f"  sites        {'site':<{width}}  {'rounds':>6}  {'nodes':>7}  {'records':>11}")
    for site in sites[:most]:
        numbers = f"{site['rounds']:>6,}  {site['nodes']:>7,}  {site['records']:>11,}"
        say(f"               {site['site']!s:<{width}}  {numbers}")
    if len(sites) > most:
        say(f"               and {len(sites) - most:,} more (--json lists all)")


def _names(names: list[str] | None) -> str:
    if names is None:
        return ""
    return f": {', '.join(names[:8])}" + (" ..." if len(names) > 8 else "")


def _size(n: int) -> str:
    size = float(n)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
