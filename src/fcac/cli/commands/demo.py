"""``fcac demo``: the paper's three Gaussians, round by round, and a mixed table under privacy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fcac._text import counted, duration
from fcac.cli import options as opt
from fcac.cli.console import BadUse, note, say


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the report and the model.")] = Path(
        "fcac-demo"
    ),
    seed: opt.Seed = 0,
    server: opt.ServerName = "communities",
    show: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """See it work: three Gaussians arrive at two sites over three rounds, then patients of three clinics under privacy.

    [bold]Example[/bold]

    fcac demo
    """

    run(out, seed, server, show)


def run(out: Path, seed: int, server: str, show: bool) -> None:
    """Run the demo, write its report and its model, and finally print the path of the report."""
    import numpy as np
    from sklearn.metrics import homogeneity_score

    from fcac import save
    from fcac.federation import readouts
    from fcac.model.demo import GAUSSIANS, demo_data
    from fcac.model.fcac import FCAC
    from fcac.report import write_report

    if server not in readouts.names():
        raise BadUse(f"--server must be one of {', '.join(readouts.names())}, not {server}")
    if out.exists() and not out.is_dir():
        raise BadUse(f"--out {out} is a file: give a directory")
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    model = FCAC(server=server, random_state=seed)
    rows: dict[str, list[Any]] = {}
    truth: list[Any] = []
    points: list[Any] = []
    say("Three Gaussians (A, B, C; 15,000 points each) arrive at two sites over three rounds.")
    for arriving in demo_data(seed):
        model.partial_fit(arriving.rows)
        for site, block in arriving.rows.items():
            rows.setdefault(site, []).append(block)
            points.append(block)
            truth.append(arriving.gaussians[site])
        sent = {item.site: len(item.nodes) for item in model.server_.log[-1]}
        met = ", ".join(
            f"{site} gets {' and '.join(GAUSSIANS[g] for g in np.unique(labels))}"
            for site, labels in arriving.gaussians.items()
        )
        pure = homogeneity_score(np.concatenate(truth), model.predict(np.concatenate(points)))
        say(
            f"  round {arriving.number}: {met}; {counted(sum(sent.values()), 'node')} sent, "
            f"{counted(model.n_clusters_, 'cluster')} at the server; "
            f"{'no cluster mixes two Gaussians' if pure >= 0.99 else f'homogeneity {pure:.2f}'} so far"
        )
    save(model, out / "model.fcac")
    path = out / "report.html"
    other = _other_server(model)
    say(f"  the same nodes, read by the {other.kind} server: {counted(other.n_clusters, 'cluster')}")
    together = {site: np.concatenate(blocks) for site, blocks in rows.items()}
    write_report(model, path, together, title="FCAC demo", compare=other)
    clinics = _clinics(out, seed)
    if clinics is not None:
        say(f"Report of the clinics: {clinics.resolve()}")
    say(f"Done in {duration(time.monotonic() - started)}. Model: {out / 'model.fcac'}. Report:")
    if show:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
    say(str(path.resolve()))


def _clinics(out: Path, seed: int) -> Path | None:
    """Cluster a small mixed table across three clinics under privacy, and write its report."""
    from importlib.util import find_spec

    from fcac.model.demo_clinics import EPSILON, N_PATIENTS, fit_clinics
    from fcac.report import write_report

    if find_spec("opendp") is None:
        note("The second part, a mixed table under privacy, needs the extra: pip install 'fcac[privacy]'")
        return None
    say(f"Three clinics, {N_PATIENTS:,} patients each: age, creatinine, HbA1c, diagnosis; epsilon = {EPSILON:g}.")
    model = fit_clinics(seed)
    sent = sum(len(item.nodes) for item in model.server_.log[-1])
    say(f"  {counted(sent, 'noised node')} sent, {counted(model.n_clusters_, 'cluster')} at the server")
    path = out / "clinics.html"
    write_report(model, path, title="Three clinics, under privacy")
    return path


def _other_server(model: Any) -> Any:
    """Return the other kind of server after absorbing the same contributions."""
    from fcac.federation import readouts

    other = model.server_.blank(next(name for name in readouts.names() if name != model.server))
    for batch in model.server_.log:
        other.absorb(batch)
    return other
