"""Upkeep of a hub or a site: back-up and restore, a new address, and a look at everything that could go wrong."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import sqlite3
import ssl
import stat
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NamedTuple

from fcac import persistence
from fcac._text import plain
from fcac._version import __version__
from fcac.deployment import certificates, presence, processes, study
from fcac.deployment.settings import FEDERATION_FILE, STATE, FederationSettings, SiteSettings, schema_digest
from fcac.deployment.site_setup import state_of
from fcac.exceptions import FederationError
from fcac.tables.schema import Schema

_LEFT_OUT = ("lock", "run-lock", "presence.json")
_LEAST_BYTES = 1_000_000_000
_LEAST_DAYS = 30
_FAR_SECONDS = 86_400.0


# ------------------------------------------------------------ back-up


def backup(folder: Path, out: Path) -> int:
    """Write a hub's directory, or a site's state, into one file that only its owner can read; return its bytes.

    A hub may run meanwhile, and a site be idle: both are stopped from changing anything while their files are read.
    """
    state = _state_in(folder)
    if state is None:
        raise ValueError(f"{folder} is neither a hub's directory nor a site's state or bundle")
    if out.exists():
        raise ValueError(f"{out} exists already: a back-up replaces nothing")
    draft = out.with_name(f".{out.name}.part")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        with contextlib.ExitStack() as stack:
            if state.is_dir():
                stack.enter_context(persistence.locked(state / "lock", 600.0))
            copies = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=out.parent, prefix=".backup-")))
            archive = stack.enter_context(tarfile.open(fileobj=stream, mode="w:gz"))
            for path in sorted(folder.rglob("*")):
                if not path.is_file() or path.name in _LEFT_OUT or path.name.startswith("."):
                    continue
                source = path
                if path.suffix == ".db":
                    source = copies / path.name
                    copy_database(path, source)
                archive.add(source, path.relative_to(folder), recursive=False)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, out)
    return out.stat().st_size


def _state_in(folder: Path) -> Path | None:
    """Return the directory whose lock keeps a hub or a site from changing anything; None if it is neither."""
    if (folder / FEDERATION_FILE).exists():
        return folder / STATE
    if (folder / "settings.json").exists():
        return folder
    if not (folder / study.BUNDLE_FILE).exists():
        return None
    state = state_of(folder, None)
    if state != folder / "state":
        raise ValueError(
            f"the state of this site, with its ledger, is in {state}: back that up, and {folder} beside it"
        )
    return state


def copy_database(source: Path, copy: Path) -> None:
    """Write a consistent copy of a SQLite file that may be in use."""
    with contextlib.closing(sqlite3.connect(source)) as database, contextlib.closing(sqlite3.connect(copy)) as target:
        database.backup(target)


def restore(archive: Path, folder: Path) -> None:
    """Bring a back-up back, into a directory that does not exist yet.

    Raises
    ------
    ValueError
        If the directory has something in it, or if the file is not a back-up.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: move it away first, so that nothing is mixed up")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".restore-") as draft:
        try:
            with tarfile.open(archive) as found:
                # paths outside, links and devices are refused
                found.extractall(draft, filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise ValueError(f"{archive} is not a back-up, or is damaged: {plain(str(error))}") from None
        if _state_in(Path(draft)) is None:
            raise ValueError(f"{archive} is not a back-up of a hub or a site")
        for path in [Path(draft), *Path(draft).rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)
        if folder.exists():
            folder.rmdir()
        shutil.move(draft, folder)
        Path(draft).mkdir()  # what the context removes


# ------------------------------------------------------------ a new address


def move(folder: Path, address: str) -> str:
    """Note a new address of the hub, at the hub (with a new certificate) or in a site's bundle; return the old one."""
    certificates.split_address(address)
    path = folder / FEDERATION_FILE
    is_hub = path.exists()
    if not is_hub:
        path = folder / study.BUNDLE_FILE
        study.read_bundle(folder)
    text = path.read_text("utf-8")
    found = re.search(r'^address = "([^"]*)"', text, re.M)
    if found is None:
        raise ValueError(f"{path} has no address")
    changed = text[: found.start(1)] + address + text[found.end(1) :]
    if is_hub:
        # the certificate holds the old name, too: sites that have not heard of the new one still get in
        old = certificates.split_address(found[1])[0]
        study.renew(folder, address, [old])
        study.note(folder, "address", reason=f"{found[1]} is now {address}")
    persistence.write_atomic(path, changed.encode())
    return found[1]


# ------------------------------------------------------------ doctor


class Finding(NamedTuple):
    """What was looked at, whether it is in order ("ok", "look" or "bad"), and what was found."""

    what: str
    grade: str
    text: str


def examine(folder: Path, state: Path | None = None) -> list[Finding]:
    """Look at a hub's directory, or at a site's bundle and state, before the first round is paid for."""
    found = list(_of_machine(folder))
    checks = _of_hub(folder) if (folder / FEDERATION_FILE).exists() else _of_site(folder, state)
    try:
        found += checks
    except (ValueError, OSError, FederationError) as error:
        found.append(Finding("settings", "bad", plain(str(error))))
    return found


def _of_machine(folder: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    yield Finding("disk", "ok" if free > _LEAST_BYTES else "look", f"{free / 1e9:.1f} GB free")
    yield Finding("versions", "ok", f"fcac {__version__}, Python {sys.version.split()[0]}, {ssl.OPENSSL_VERSION}")
    proxy = urllib.request.getproxies().get("https", "")
    # a proxy's address may hold a password
    yield Finding("proxy", "ok", f"HTTPS_PROXY is {plain(proxy.rpartition('@')[2])}" if proxy else "none")


def _of_hub(root: Path) -> Iterator[Finding]:
    from fcac.deployment.hub import Hub

    settings = FederationSettings.load(root)
    yield _dates("certificate", root / "server" / "server.crt")
    host = certificates.split_address(settings.address)[0]
    try:
        socket.getaddrinfo(host, None)
        yield Finding("name", "ok", f"{host} is known here")
    except OSError:
        yield Finding("name", "look", f"{host} is unknown here: sites must be able to look it up")
    yield from _private([root / "ca" / "ca.key", root / "server" / "server.key", root / STATE, root / "server"])
    closed = Hub(root / STATE, settings).store.closed
    yield Finding("store", "ok", f"{closed} rounds closed")
    yield _schema(settings.schema, settings.summing is not None)
    running = processes.is_running(root)
    yield Finding("hub", "ok" if running else "look", "runs" if running else f"start it: fcac federation server {root}")
    seen = presence.read(root / STATE)
    for name in settings.active:
        heard = seen.get(name)
        if heard is None:
            yield Finding(f"site {name}", "look", "was never here")
        elif not heard.open:
            yield Finding(f"site {name}", "look", f"is away since {heard.time}")
        elif abs(heard.clock_skew) > _FAR_SECONDS / 2:
            yield Finding(f"site {name}", "look", f"its clock is {abs(heard.clock_skew) / 3600:.1f} hours off")
        else:
            version = "" if heard.version == __version__ else f", with fcac {heard.version}"
            yield Finding(f"site {name}", "ok", f"is connected{version}")


def _of_site(bundle: Path, state: Path | None) -> Iterator[Finding]:
    facts = study.read_bundle(bundle)
    yield from _private([bundle / study.KEY_FILE])
    if (bundle / study.CERTIFICATE_FILE).exists():
        yield _dates("certificate", bundle / study.CERTIFICATE_FILE)
        own = certificates.is_issued_by(bundle / study.CERTIFICATE_FILE, bundle / "ca.crt")
        yield Finding("authority", "ok" if own else "bad", "has signed it" if own else "another one has signed it")
        yield from _reach(bundle, str(facts["address"]))
    else:
        yield Finding("certificate", "look", "none yet: the hub's operator has not accepted this site")
    schema = Schema.load(bundle / "schema.toml")
    folder = state_of(bundle, state)
    if not (folder / "settings.json").exists():
        yield Finding("schema", "ok", f"{len(schema.used)} columns")
        yield Finding("state", "look", f"{folder} is new: nothing was agreed to, and no budget set")
        return
    settings = SiteSettings.load(folder / "settings.json")
    yield _schema(schema, settings.private)
    yield from _private([folder])
    mechanism = settings.mechanism()
    if settings.epsilon is not None and (folder / "ledger.db").exists():
        left = float(mechanism.ledger.remaining_at_least())
        grade = "ok" if left >= settings.epsilon else "look"
        yield Finding("budget", grade, f"epsilon {left:.3g} of {mechanism.ledger.budget:g} is left")


def _reach(bundle: Path, address: str) -> Iterator[Finding]:
    """Ask the hub for the study's settings, as the site's process does."""
    import asyncio

    from fcac.deployment.site_link import ask_once

    try:
        files, date = asyncio.run(ask_once(bundle))
    except FederationError as error:
        yield Finding("hub", "bad", plain(str(error)))
        return
    yield Finding("hub", "ok", f"{address} answers and knows this site")
    with contextlib.suppress(ValueError, TypeError):
        apart = time.time() - parsedate_to_datetime(date).timestamp()
        far = abs(apart) > _FAR_SECONDS / 2
        text = f"{abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the hub's"
        yield Finding("clock", "look" if far else "ok", text)
    same = schema_digest(Schema.from_toml(str(files["schema.toml"]))) == schema_digest(
        Schema.load(bundle / "schema.toml")
    )
    yield Finding(
        "study", "ok" if same else "look", "the same schema" if same else "the schema has changed: start again"
    )


def _schema(schema: Schema, private: bool) -> Finding:
    if not private:
        return Finding("schema", "ok", f"{len(schema.used)} columns")
    try:
        bounds = schema.require_bounds()
    except ValueError as error:
        return Finding("schema", "bad", plain(str(error)))
    return Finding("schema", "ok", f"{len(schema.used)} columns, {len(bounds)} features with public bounds")


def _dates(what: str, path: Path) -> Finding:
    left = (certificates.ends(path).timestamp() - time.time()) / 86_400
    grade = "bad" if left <= 0 else "look" if left < _LEAST_DAYS else "ok"
    return Finding(what, grade, f"{left:.0f} days left")


def _private(paths: list[Path]) -> Iterator[Finding]:
    there = [path for path in paths if path.exists()]
    open_ones = [path for path in there if stat.S_IMODE(path.stat().st_mode) & 0o077]
    text = f"chmod go= {' '.join(map(str, open_ones))}" if open_ones else f"{len(there)} for the owner only"
    yield Finding("permissions", "bad" if open_ones else "ok", text)
