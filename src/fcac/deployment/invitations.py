"""Sites join with a key of their own: the hub invites, the site makes its key, and both compare a fingerprint aloud.

1. The hub's operator invites a site (:func:`invite`) and passes on one line of text: where sites join, by which
   fingerprint the hub's certificate authority is recognised, and a token that is good for one key.
2. The site makes a key. Only a request to certify it travels, with the token (:func:`join` there, :func:`ask` here);
   the site gets the schema and the authority's certificate.
3. Both operators read the fingerprint of the site's key to each other; if they agree, the hub's accepts it
   (:func:`accept`), and its authority signs the request. The site fetches its certificate when it starts
   (:func:`fetch_certificate`). Until then the key opens nothing.

The invitation is confidential, but not for long: whoever steals it can only ask, under a fingerprint that will differ.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import secrets
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from fcac import persistence
from fcac._text import plain
from fcac.aggregation import Roster, SigningKey
from fcac.deployment import certificates, study
from fcac.deployment.aggregated_study import SITE_KEY_FILE
from fcac.deployment.settings import FederationSettings, check_site_name
from fcac.tables.schema import Schema

_FILE = "invitations.json"
_SECONDS = 30.0
_MOST_ANSWER = 1_000_000
_INVITATION_FILE = "invitation"


class Invitation(NamedTuple):
    """What a site needs to ask: where to join, the site's name, the authority's fingerprint, and a token."""

    address: str
    site: str
    authority: str
    token: str

    def __str__(self) -> str:
        return f"fcac-invitation/2/{self.address}/{self.site}/{self.authority}/{self.token}"

    @classmethod
    def parse(cls, text: str) -> Invitation:
        """Read an invitation; raise ``ValueError`` for anything else."""
        parts = text.strip().split("/")
        if len(parts) != 6 or parts[:2] != ["fcac-invitation", "2"]:
            raise ValueError("this is not an invitation: one is a single line that begins with fcac-invitation/2/")
        certificates.split_address(parts[2])
        check_site_name(parts[3])
        if not re.fullmatch(r"[0-9a-f]{64}", parts[4]) or not re.fullmatch(r"[A-Za-z0-9_-]{20,60}", parts[5]):
            raise ValueError("this invitation is damaged: copy the whole line")
        return cls(*parts[2:])


def authority_fingerprint(root: Path) -> str:
    """Return by what the federation's certificate authority is recognised."""
    pem = (root / "ca" / "ca.crt").read_text("ascii")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


# ------------------------------------------------------------ at the hub


def invite(root: Path, site: str, hours: float = 72.0) -> Invitation:
    """Invite a site; an earlier invitation of the same site is no longer valid."""
    check_site_name(site)
    settings = FederationSettings.load(root)
    member = settings.members.get(site)
    if member is not None and member.status == "active":
        raise ValueError(f"site {site} already takes part")
    token = secrets.token_urlsafe(24)
    expires = datetime.now(UTC) + timedelta(hours=hours)
    with _changing(root) as book:
        book[site] = {"token": _hash(token), "expires": expires.isoformat(timespec="seconds"), "request": ""}
    study.note(root, "invited", site=site)
    host = settings.address.rpartition(":")[0]
    return Invitation(f"{host}:{settings.join_port}", site, authority_fingerprint(root), token)


def ask(root: Path, request: Any) -> dict[str, str]:
    """Answer a site that asks to join; return the files of its bundle, and its certificate once it was accepted.

    A token is good for one key. The same key may ask again, should the answer have been lost.

    Raises
    ------
    ValueError
        If the token is unknown, used or too old. The text says no more than that.
    """
    wrong = ValueError("this invitation is not valid: it is unknown, used or too old")
    if not isinstance(request, dict):
        raise wrong
    site, token, wanted = (request.get(name) for name in ("site", "token", "request"))
    summing = request.get("summing", "")
    if not isinstance(site, str) or not isinstance(token, str) or not isinstance(wanted, str):
        raise wrong
    if not isinstance(summing, str) or not re.fullmatch(r"([0-9a-f]{64})?", summing):
        raise wrong
    # nothing is locked, parsed or written for those who have no token
    known = _read(root).get(site)
    if known is None or not hmac.compare_digest(known["token"], _hash(token)):
        raise wrong
    key = certificates.request_fingerprint(wanted)
    with _changing(root) as book:
        entry = book.get(site)
        if entry is None or not hmac.compare_digest(entry["token"], _hash(token)):
            raise wrong
        if entry["request"] and certificates.request_fingerprint(entry["request"]) != key:
            raise wrong
        if datetime.fromisoformat(entry["expires"]) < datetime.now(UTC):
            raise wrong
        fresh = not entry["request"]
        if fresh:
            entry["request"], entry["summing"] = wanted, summing
        certificate = entry.get("certificate", "")
    if fresh:
        study.note(root, "asks to join", site=site, fingerprint=certificates.spoken(key))
    files = study.bundle_files(root, site)
    return {**files, study.CERTIFICATE_FILE: certificate} if certificate else files


def waiting(root: Path) -> dict[str, str]:
    """Return the sites that have asked to join, with the fingerprints of their keys."""
    asked = {site: entry["request"] for site, entry in _read(root).items() if not entry.get("certificate")}
    return {site: _spoken(request) for site, request in asked.items() if request}


def accept(root: Path, site: str) -> str:
    """Let a site that has asked take part; return the fingerprint of its key."""
    with _changing(root) as book:
        entry = book.get(site)
        if entry is None or not entry["request"] or entry.get("certificate"):
            raise ValueError(f"site {site} has not asked to join: invite it, and let it run 'fcac federation join'")
        entry["certificate"] = certificates.sign_site(root / "ca", site, entry["request"])
        study.admit(root, site, certificates.request_fingerprint(entry["request"]), entry.get("summing", ""))
        now = datetime.now(UTC)
        for name in [name for name, one in book.items() if datetime.fromisoformat(one["expires"]) < now]:
            del book[name]
    return _spoken(entry["request"])


def _spoken(request: str) -> str:
    return certificates.spoken(certificates.request_fingerprint(request))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _read(root: Path) -> dict[str, dict[str, str]]:
    path = root / "server" / _FILE
    found: dict[str, dict[str, str]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


class _changing:
    """The invitations, to be changed while nobody else does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = persistence.locked(root / "server" / "invitations.lock", _SECONDS)

    def __enter__(self) -> dict[str, dict[str, str]]:
        self._lock.__enter__()
        self.book = _read(self.root)
        return self.book

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                path = self.root / "server" / _FILE
                persistence.write_atomic(path, json.dumps(self.book, indent=1).encode())
                path.chmod(0o600)
        finally:
            self._lock.__exit__(kind, error, trace)


# ------------------------------------------------------------ at the site


def join(invitation: Invitation, folder: Path) -> str:
    """Make a key here, ask the hub to certify it, and write the bundle; return the key's fingerprint.

    Parameters
    ----------
    invitation : Invitation
    folder : Path
        Becomes the bundle. If it already holds a key (an earlier attempt), that key is used again.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    request = certificates.make_key(folder / study.KEY_FILE, invitation.site)
    certificates.write_private(folder / _INVITATION_FILE, f"{invitation}\n".encode())
    _ask_hub(invitation, folder, request)
    return _spoken(request)


def fetch_certificate(folder: Path) -> bool:
    """Fetch the site's certificate, and the study's present schema; return False if the site is not accepted yet."""
    path = folder / _INVITATION_FILE
    if not path.exists():
        raise ValueError(f"the bundle {folder} has no {study.CERTIFICATE_FILE}: has the site been revoked?")
    invitation = Invitation.parse(path.read_text("utf-8"))
    request = certificates.make_key(folder / study.KEY_FILE, invitation.site)
    certificate = _ask_hub(invitation, folder, request)
    if not certificate:
        return False
    persistence.write_atomic(folder / study.CERTIFICATE_FILE, certificate.encode("ascii"))
    path.unlink()
    return True


def write_bundle(folder: Path, files: Any, site: str) -> None:
    """Write the files of a bundle that came from the hub, after checking them."""
    with tempfile.TemporaryDirectory(dir=folder) as draft:
        for name in (study.BUNDLE_FILE, "schema.toml", "ca.crt"):
            text = files.get(name) if isinstance(files, dict) else None
            if not isinstance(text, str):
                raise ValueError("the hub has not sent a complete bundle")
            (Path(draft) / name).write_text(text, "utf-8")
        if study.read_bundle(draft)["site"] != site:
            raise ValueError("the hub has sent the bundle of another site")
        Schema.load(Path(draft) / "schema.toml")
        roster = files.get(study.OFFERED_FILE)
        if isinstance(roster, str):
            persistence.write_atomic(folder / study.OFFERED_FILE, Roster.from_bytes(bytes.fromhex(roster)).to_bytes())
        for name in ("ca.crt", "schema.toml", study.BUNDLE_FILE):
            persistence.write_atomic(folder / name, (Path(draft) / name).read_bytes())


def _ask_hub(invitation: Invitation, folder: Path, request: str) -> str:
    """Ask at the hub's open port, and write what it sends; return the certificate, empty if there is none yet."""
    authority = _fetch_authority(invitation)
    # a key for summed rounds is made at the site like the other, whether or not the study needs it
    summing = SigningKey.at(folder / SITE_KEY_FILE).public.hex()
    body = {"site": invitation.site, "token": invitation.token, "request": request, "summing": summing}
    files = asyncio.run(_talk(invitation.address, ssl.create_default_context(cadata=authority), body))
    try:
        answer = json.loads(files[1])
    except ValueError:
        answer = None
    if files[0] != 200 or not isinstance(answer, dict):
        said = plain(str(answer.get("detail", ""))) if isinstance(answer, dict) else ""
        raise ValueError(f"the hub does not let this site join: {said or f'status {files[0]}'}")
    write_bundle(folder, answer | {"ca.crt": authority}, invitation.site)
    return str(answer.get(study.CERTIFICATE_FILE, ""))


def _fetch_authority(invitation: Invitation) -> str:
    """Return the authority's certificate, recognised by its fingerprint: the way there need not be trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    status, data = asyncio.run(_talk(invitation.address, context, None))
    pem = data.decode("ascii", "replace")
    try:
        found = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest() if status == 200 else ""
    except ValueError:
        found = ""
    if not hmac.compare_digest(found, invitation.authority):
        raise ValueError(f"what answers at {invitation.address} is not the hub that sent this invitation")
    return pem


async def _talk(address: str, context: ssl.SSLContext, body: dict[str, str] | None) -> tuple[int, bytes]:
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        # proxies of the environment are used
        async with aiohttp.ClientSession(trust_env=True, timeout=timeout) as session:
            method = "GET" if body is None else "POST"
            async with session.request(method, f"https://{address}/join", json=body, ssl=context) as answer:
                data = b""
                async for piece in answer.content.iter_chunked(65_536):
                    data += piece
                    if len(data) > _MOST_ANSWER:
                        raise ValueError(f"what answers at {address} sends more than a bundle")
                return answer.status, data
    except (OSError, TimeoutError, aiohttp.ClientError) as error:
        said = plain(str(error)) or type(error).__name__
        raise ValueError(f"the hub at {address} cannot be reached: {said}") from None
