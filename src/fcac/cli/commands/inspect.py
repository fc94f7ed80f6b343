"""``fcac inspect``: describe the contents of a model file, as text or JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from fcac._text import counted
from fcac.cli import options as opt
from fcac.cli.terminal import say


def inspect(
    model: opt.ModelPath,
    as_json: opt.AsJson = False,
) -> None:
    """Describe the contents of a model file, and say whether it may be shared.

    [bold]Examples[/bold]

    fcac inspect model.fcac

    fcac inspect model.fcac --json
    """

    facts = describe(model)
    if as_json:
        say(json.dumps(facts, indent=2))
    else:
        show(facts)


def describe(path: Path) -> dict[str, Any]:
    """Return a description of a model file as plain values."""
    from fcac import persistence
    from fcac.cli.model_file import columns_of, load_model, schema_of

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


def show(facts: dict[str, Any]) -> None:
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
