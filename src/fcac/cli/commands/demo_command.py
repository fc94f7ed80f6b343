"""``fcac demo``: a table of mixed columns, a table that tells nothing, and three clinics under privacy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from fcac._text import counted, duration
from fcac.cli import options as opt
from fcac.cli.terminal import BadUse, note, say


def demo(
    out: Annotated[Path, opt.option("Directory for the reports and the model.", "--out", "-o")] = Path("fcac-demo"),
    seed: opt.Seed = 0,
    show: Annotated[bool, opt.option("Open the report in a browser.", "--open")] = False,
) -> None:
    """See it work: a table of customers, forty rows of noise, and patients of three clinics under privacy.

    [bold]Example[/bold]
    fcac demo
    """
    from fcac.model.fcac import FCAC
    from fcac.report import write_report

    if out.exists() and not out.is_dir():
        raise BadUse(f"--out {out} is a file: give a directory")
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    say("600 customers of three kinds: a number, a date, a category, gaps, amounts of money. Nobody says how many.")
    model = FCAC(random_state=seed).fit(_customers(seed))
    for line in [*model.summary().taken, *model.verdict_.lines()]:
        say(f"  {line}")
    model.save(out / "model.fcac")
    path = out / "report.html"
    write_report(model, path, title="Customers")
    say("40 rows of noise in four columns: is there anything?")
    for line in FCAC(random_state=seed).fit(_noise(seed)).verdict_.lines():
        say(f"  {line}")
    clinics = _clinics(out, seed)
    if clinics is not None:
        say(f"Report of the clinics: {clinics.resolve()}")
    say(f"Done in {duration(time.monotonic() - started)}. Model: {out / 'model.fcac'}. Report:")
    if show:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
    say(str(path.resolve()))


def _customers(seed: int) -> Any:
    """Return a made-up table as a shop has it, in which customers of three kinds differ."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=600)
    visits = rng.normal(np.array([20.0, 9.0, 3.0])[kind], 1.5).round(1)
    visits[rng.random(600) < 0.1] = np.nan
    usual = np.array(["app", "web", "shop"])[kind]
    return pa.table(
        {
            "customer": [f"C{number:04d}" for number in rng.permutation(600)],
            "age": rng.normal(np.array([25.0, 46.0, 68.0])[kind], 4).round(),
            "visits": visits,
            "spent": rng.lognormal(np.array([3.0, 4.0, 5.0])[kind], 0.4).round(2),
            "channel": np.where(rng.random(600) < 0.9, usual, rng.permutation(usual)),
            "joined": np.datetime64("2024-01-01") + rng.integers(366, size=600).astype("timedelta64[D]"),
        }
    )


def _noise(seed: int) -> Any:
    """Return forty rows in which there is nothing to find."""
    import numpy as np

    return np.random.default_rng(seed).normal(size=(40, 4))


def _clinics(out: Path, seed: int) -> Path | None:
    """Cluster a small mixed table across three clinics under privacy, and write its report."""
    from importlib.util import find_spec

    from fcac.model.demo import EPSILON, N_PATIENTS, fit_clinics
    from fcac.report import write_report

    if find_spec("opendp") is None:
        note("The last part, a mixed table under privacy, needs the extra: pip install 'fcac[privacy]'")
        return None
    say(f"Three clinics, {N_PATIENTS:,} patients each: age, creatinine, HbA1c, diagnosis; epsilon = {EPSILON:g}.")
    model = fit_clinics(seed)
    sent = sum(len(item.nodes) for item in model.server_.log[-1])
    say(f"  {counted(sent, 'noised node')} left the clinics, and no row")
    for line in model.verdict_.lines():
        say(f"  {line}")
    path = out / "clinics.html"
    write_report(model, path, title="Three clinics, under privacy")
    return path
