"""The settings of a site, from its bundle and its operator's choices, and where its state is kept."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from fcac import persistence
from fcac.deployment.aggregated_study import SITE_KEY_FILE
from fcac.deployment.settings import SiteSettings
from fcac.deployment.study import BUNDLE_FILE, read_bundle
from fcac.tables.sources import is_address


def store_settings(settings: SiteSettings) -> Path:
    """Write a site's settings into its state directory, from which requests are answered; return the file."""
    make_private(Path(settings.state))
    path = (Path(settings.state) / "settings.json").resolve()
    settings.save(path)
    return path


def make_private(folder: Path) -> None:
    """Make a directory that only its owner can enter, whether or not it existed: it holds what the rows say."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def site_settings(bundle: Path, data: Path | str, state: Path, **choices: Any) -> SiteSettings:
    """Return the settings of a site from its bundle and its operator's choices, after checking them."""
    facts = read_bundle(bundle)
    choices |= summed_by(bundle, facts, choices)
    settings = SiteSettings(
        name=str(facts["site"]),
        data=data if isinstance(data, str) and is_address(data) else str(Path(data).resolve()),
        state=str(state.resolve()),
        schema=str((bundle / "schema.toml").resolve()),
        encoders=facts.get("encoders", {}),
        **facts.get("condensing", {}),
        **choices,
    )
    from fcac.federation import Site
    from fcac.privacy.samplers import OpenDPSampler
    from fcac.tables.schema import Schema

    make_private(state)
    if settings.agree is not None and Schema.load(settings.schema).bounds is None:
        # nothing can be released before the sites have agreed on bounds
        OpenDPSampler().check_ready()
        return settings
    mechanism = settings.mechanism()
    if mechanism is not None:
        mechanism.sampler.check_ready()
    # refuses a state that was made with other privacy settings
    Site(settings.name, mechanism, state, settings.make_condenser())
    return settings


def summed_by(bundle: Path, facts: dict[str, Any], choices: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a site whose study sums its sites, if its operator has agreed to the study's epsilon."""
    summing = facts.get("summing")
    if summing is None:
        return {}
    for name in ("epsilon", "delta"):
        chosen = choices.get(name, 1e-6 if name == "delta" else None)
        if chosen != summing[name]:
            raise ValueError(
                f"this study sums its sites at {name} = {summing[name]:g}, the same for all: "
                f"take part with --{name} {summing[name]:g}, or not at all"
            )
    key = (bundle / SITE_KEY_FILE).resolve()
    return {"summing_key": str(key)}


def budget_of(state: Path, epsilon: float, wanted: float | None) -> tuple[float, str]:
    """Return the budget of a site and its origin: the one in its ledger or, for a new one, the one requested."""
    from fcac.privacy import Ledger

    path = state / "ledger.db"
    if path.exists() and path.stat().st_size:  # a crash can leave an empty file
        known = Ledger.open(path).budget
        if wanted is not None and wanted != known:
            raise ValueError(
                f"the site's ledger has a budget of {known:g}, not {wanted:g}: leave out --budget, or change it with "
                f"'fcac ledger {path} --set-budget {wanted:g}'"
            )
        return known, "from its ledger"
    if wanted is None:
        raise ValueError(
            "--budget is missing: the epsilon that this site may spend over all rounds. There is no default; "
            f"with --budget {epsilon:g} the site answers one round"
        )
    return wanted, "as given"


def state_of(bundle: Path, state: Path | None) -> Path:
    """Return the state directory of a site: the one given, the one last used with this bundle, or one inside it.

    The note in the bundle counts only if the state directory it names was used with this bundle: a bundle comes from
    the hub, and where this site keeps its state is not the hub's to say.
    """
    if state is not None:
        return state
    pointer = bundle / "state-directory"
    if pointer.exists():
        named = Path(pointer.read_text("utf-8").strip())
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            stored = json.loads((named / "settings.json").read_text("utf-8"))
            if Path(stored["schema"]) == (bundle / "schema.toml").resolve():
                return named
    return bundle / "state"


def remember_state(bundle: Path, state: Path) -> None:
    """Record in the bundle where the site's state is, so that other commands find it."""
    if (bundle / BUNDLE_FILE).exists() and state.resolve() != (bundle / "state").resolve():
        persistence.write_atomic(bundle / "state-directory", f"{state.resolve()}\n".encode())
