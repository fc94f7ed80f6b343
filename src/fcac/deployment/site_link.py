"""A site's process: it asks the hub for messages and answers each. It listens on no port.

Nothing that comes from the hub is executed: a message holds values, and only :mod:`fcac.deployment.answers` answers.
Its question for messages is open at the hub all the time, also while an answer is being computed: so the hub knows that
the site is there, and that no second process uses its key.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import secrets
import signal
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    from fcac._without import leave_out

    # scikit-learn loads pandas wherever it is installed, and OpenDP polars; a site does without, and with 70 MB less
    leave_out("pandas")
    leave_out("polars")

from fcac import persistence
from fcac._text import plain
from fcac._version import __version__
from fcac.deployment import certificates, invitations, processes
from fcac.deployment.answers import answer
from fcac.deployment.settings import SiteSettings
from fcac.deployment.site_agent import write_log
from fcac.deployment.study import CERTIFICATE_FILE, KEY_FILE, read_bundle
from fcac.exceptions import FederationError

try:
    import aiohttp
except ImportError:
    raise ImportError("hubs and sites need the extra: pip install 'fcac[federation]'") from None

Say = Callable[[str], None]

_ACCEPT_SECONDS = 5.0
_POLL_SECONDS = 60.0
_REPLY_SECONDS = 120.0
_RETRY_SECONDS = 1.0
_MOST_RETRY_SECONDS = 60.0
_SKEW_WORTH_TELLING = 60.0


class HubRefuses(Exception):
    """The hub does not accept this site: nothing changes by trying again."""


class HubAway(Exception):
    """The hub does not answer, or cannot now."""


class SiteLink:
    """Connects one site to its hub, and stays connected, until it is stopped or refused.

    Requests are answered from the file of settings; `say` is called with every line that the operator should see.
    """

    def __init__(self, bundle: Path, settings: SiteSettings, settings_file: Path, say: Say = print) -> None:
        facts = read_bundle(bundle)
        self.bundle, self.settings, self.settings_file, self.say = bundle, settings, settings_file, say
        self.address = str(facts["address"])
        lacking = [name for name in ("ca.crt", KEY_FILE) if not (bundle / name).is_file()]
        if lacking:
            raise FederationError(f"the bundle {bundle} has no {lacking[0]}: has the site been revoked?")
        self.instance = secrets.token_hex(8)
        self._connected = False
        self._away_since: float | None = None
        self._told = ""
        self._busy = ""
        self._work: asyncio.Task[None] | None = None
        self._news = NewLines(Path(settings.state) / "site.log")

    def run(self) -> None:
        """Answer messages until a signal arrives; raise an error once the hub refuses this site."""
        os.umask(0o077)
        if not (self.bundle / CERTIFICATE_FILE).exists():
            self._wait_to_be_accepted()
        try:
            asyncio.run(self._run())
        except HubRefuses as error:
            raise FederationError(str(error)) from None

    def _wait_to_be_accepted(self) -> None:
        told = ""
        while True:
            try:
                if invitations.fetch_certificate(self.bundle):
                    self.say("Accepted: the hub has certified this site's key.")
                    return
                said = "waiting until the hub's operator has accepted this site"
            except ValueError as error:
                if "cannot be reached" not in str(error):
                    raise
                said = f"{error}; trying until it can"
            if said != told:
                self.say(said)
                told = said
            time.sleep(_ACCEPT_SECONDS)

    async def _run(self) -> None:
        asking = asyncio.create_task(self._ask_for_messages())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError, RuntimeError):  # a thread of a test has no signals
                loop.add_signal_handler(number, asking.cancel)
        try:
            await asking
        except asyncio.CancelledError:
            self.say("Stopping.")
        finally:
            if self._work is not None:
                # what is being computed goes on to its end: it is stored, and sent when the site is back
                self._work.cancel()

    # ------------------------------------------------------------ messages

    async def _ask_for_messages(self) -> None:
        async with self._session() as session:
            pause = _RETRY_SECONDS
            while True:
                try:
                    await self._ask_once(session)
                    self._welcome()
                    pause = _RETRY_SECONDS
                    continue
                except HubAway as error:
                    self._tell_away(str(error))
                # sites that lost the hub at the same moment should not all come back at the same moment
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(_MOST_RETRY_SECONDS, 1.5 * pause)

    async def _ask_once(self, session: aiohttp.ClientSession) -> None:
        headers = {"X-Fcac-Instance": self.instance, "X-Fcac-Busy": self._busy, "X-Fcac-Time": f"{time.time():.1f}"}
        letter, data = "", b""
        with _in_words(self.address):
            timeout = aiohttp.ClientTimeout(total=_POLL_SECONDS)
            async with session.get("/work", headers=headers, timeout=timeout) as answered:
                await _check(answered)
                letter, data = answered.headers.get("X-Fcac-Letter", ""), await answered.read()
        if letter and letter != self._busy:
            if self._work is not None:
                # the hub waits for another answer now; the one before is finished first, and kept
                await self._work
            self._busy = letter
            self._work = asyncio.create_task(self._answer(session, letter, data))

    async def _answer(self, session: aiohttp.ClientSession, letter: str, data: bytes) -> None:
        reply = await asyncio.to_thread(answer, self.settings_file, data)
        for line in self._news.read():
            self.say(line)
        begin, pause = time.monotonic(), _RETRY_SECONDS
        # a reply that cannot be delivered is kept in the state directory and sent in the next round
        while time.monotonic() - begin < _REPLY_SECONDS:
            try:
                with _in_words(self.address):
                    headers = {"X-Fcac-Letter": letter}
                    timeout = aiohttp.ClientTimeout(total=_REPLY_SECONDS)
                    async with session.post("/reply", data=reply, headers=headers, timeout=timeout) as answered:
                        if answered.status == 410:
                            write_log(self.settings.state, "the hub no longer waits for this answer; it is kept")
                        else:
                            await _check(answered)
                break
            except HubAway:
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(_MOST_RETRY_SECONDS, 1.5 * pause)
            except HubRefuses:
                break  # the question for messages will say so
        if self._busy == letter:
            self._busy = ""

    def _session(self) -> aiohttp.ClientSession:
        try:
            context = ssl.create_default_context(cafile=str(self.bundle / "ca.crt"))
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_cert_chain(self.bundle / CERTIFICATE_FILE, self.bundle / KEY_FILE)
        except (OSError, ssl.SSLError) as error:
            raise FederationError(f"the key and certificates in {self.bundle} cannot be used: {error}") from None
        if not certificates.is_issued_by(self.bundle / CERTIFICATE_FILE, self.bundle / "ca.crt"):
            raise FederationError(f"{self.bundle / CERTIFICATE_FILE} is not of the authority in the bundle: join again")
        if certificates.ends(self.bundle / CERTIFICATE_FILE).timestamp() < time.time():
            self.say("WARNING: by this machine's clock the site's certificate has expired: ask to be invited again")
        # proxies of the environment are used
        return aiohttp.ClientSession(
            f"https://{self.address}",
            connector=aiohttp.TCPConnector(ssl=context, limit=4, keepalive_timeout=60.0),
            headers={"User-Agent": f"fcac/{__version__}"},
            trust_env=True,
        )

    # ------------------------------------------------------------ telling

    def _welcome(self) -> None:
        if self._connected:
            return
        gap = "" if self._away_since is None else f" again after {time.monotonic() - self._away_since:.0f} seconds"
        self._connected, self._away_since, self._told = True, None, ""
        self.say(f"Connected{gap}.")

    def _tell_away(self, error: str) -> None:
        if self._connected or error != self._told:
            self.say(f"{error}; trying until it does")
        self._told, self._connected = error, False
        self._away_since = self._away_since or time.monotonic()


class _in_words:
    """Turns errors of the connection into :class:`HubAway` and :class:`HubRefuses`."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, OSError | TimeoutError | aiohttp.ClientError):
            return
        said = plain(str(error)) or type(error).__name__
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            said = str(error.certificate_error)
            if "expired" in said or "not yet valid" in said:
                raise HubRefuses(
                    f"the hub's certificate is expired, or this machine's clock is wrong: {said}"
                ) from None
            raise HubRefuses(f"the hub's certificate is not of the authority in the bundle: {said}") from None
        if isinstance(error, ssl.SSLError) or "ALERT" in said.upper():
            # TLS 1.3 tells after the handshake that a certificate is refused
            raise HubRefuses(f"the hub refuses this site's key: {said}") from None
        raise HubAway(f"the hub at {self.address} does not answer: {said}") from None


async def _check(answered: aiohttp.ClientResponse) -> None:
    """Raise an error for an answer that is none."""
    if answered.status < 400:
        return
    try:
        said = plain(str((await answered.json())["detail"]))
    except (ValueError, KeyError, TypeError, aiohttp.ClientError):
        said = f"status {answered.status}"
    if answered.status == 403:
        raise HubRefuses(f"the hub refuses this site's key: {said}")
    raise HubAway(f"the hub says: {said}")


async def ask_once(bundle: Path, request: str = "") -> tuple[dict[str, str], str]:
    """Fetch the study's present settings and schema; with a request, have it certified and return that, too.

    Returns
    -------
    tuple of dict and str
        Files by name, and the hub's time as its answer says.

    A hub that cannot be reached, or refuses, is a FederationError.
    """
    site = str(read_bundle(bundle)["site"])
    link = SiteLink(bundle, SiteSettings(site, "", str(bundle), ""), bundle)
    try:
        async with link._session() as session:
            with _in_words(link.address):
                async with session.get("/bundle") as answered:
                    await _check(answered)
                    files, date = dict(await answered.json()), answered.headers.get("Date", "")
                if request:
                    async with session.post("/renew", data=request) as answered:
                        await _check(answered)
                        files[CERTIFICATE_FILE] = await answered.text()
                return files, date
    except (HubAway, HubRefuses) as error:
        raise FederationError(str(error)) from None


def refresh(bundle: Path, renew: bool = False) -> None:
    """Fetch the study's present settings and schema into the bundle; with `renew`, change the site's key."""
    site = str(read_bundle(bundle)["site"])
    request = certificates.make_key(bundle / "node.key.new", site) if renew else ""
    files, _ = asyncio.run(ask_once(bundle, request))
    invitations.write_bundle(bundle, files, site)
    if renew:
        # Key and certificate change together: the certificate is written first, under a name of its own, and whoever
        # finds it there after a crash goes on from there.
        persistence.write_atomic(bundle / "node.crt.new", files[CERTIFICATE_FILE].encode("ascii"))
        finish_renewal(bundle)


def look_for_changes(bundle: Path, tell: Say) -> None:
    """Fetch the study's present settings and schema before the operator is asked; tell if the hub cannot be reached."""
    finish_renewal(bundle)
    if not (bundle / CERTIFICATE_FILE).exists():
        return
    try:
        refresh(bundle)
    except FederationError as error:
        tell(f"note: {error}; the site starts with the settings that it has")


def finish_renewal(bundle: Path) -> None:
    """Put a new key and its certificate in place of the old ones, also after a crash in the middle of it."""
    if (bundle / "node.crt.new").exists():
        if (bundle / "node.key.new").exists():
            os.replace(bundle / "node.key.new", bundle / KEY_FILE)
        os.replace(bundle / "node.crt.new", bundle / CERTIFICATE_FILE)


def become(bundle: Path, settings_file: Path) -> None:
    """Go on as a site's process in place of the present one, which has loaded more than a site needs."""
    sys.stdout.flush()
    os.execve(
        sys.executable,
        [sys.executable, "-P", "-m", "fcac.deployment.site_link", str(bundle.resolve()), str(settings_file)],
        {**processes.LEAN, **os.environ},
    )


class NewLines:
    """Reads what is added to a site's log, entry by entry; the details of errors stay in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = path.stat().st_size if path.exists() else 0

    def read(self) -> list[str]:
        """Return the lines since the last call, in a form that can be shown."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as stream:
            stream.seek(self._at)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        lines = whole.decode("utf-8", "replace").splitlines()
        return [plain(line, 1000) for line in lines if re.match(r"\d{4}-\d\d-\d\dT", line)]


def main() -> None:
    """Take part as a process of its own: ``python -m fcac.deployment.site_link BUNDLE SETTINGS``."""
    bundle, settings_file = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        with processes.stopped_by_signals():
            finish_renewal(bundle)
            SiteLink(bundle, SiteSettings.load(settings_file), settings_file, _show).run()
    except KeyboardInterrupt:
        _show("Stopping.")
    except (FederationError, ValueError) as error:
        sys.exit(str(error))


def _show(line: str) -> None:
    """Print a line of the log: when, how grave, what; lines of the site's own log have their time."""
    if not re.match(r"\d{4}-\d\d-\d\dT", line):
        grave = "WARNING" if line.startswith("WARNING") else "INFO"
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {grave} {line}"
    print(line, flush=True)


if __name__ == "__main__":
    main()
