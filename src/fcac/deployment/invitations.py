"""Sites join with a key of their own: the hub invites, the site makes its key, and both compare a fingerprint aloud.

1. The hub's operator invites a site (:func:`invite`) and passes on one line of text: where the hub is, by which
   fingerprint its certificate authority is recognised, and a token that is good once.
2. The site makes a key pair. Only the public half travels, with the token (:func:`join` there, :func:`ask` here); the
   site gets the schema and the authority's certificate.
3. Both operators read the fingerprint of the site's key to each other; if they agree, the hub's accepts it
   (:func:`accept`). Until then the key opens nothing.

The invitation is confidential, but not for long: whoever steals it can only ask, under a fingerprint that will differ.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import secrets
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from fcac import persistence
from fcac._text import plain
from fcac.deployment import certificates, study
from fcac.deployment.settings import FederationSettings, check_site_name

_FILE = "invitations.json"
_SECONDS = 30.0
_MOST_ANSWER = 1_000_000
_KEY = re.compile(r"ecdsa-sha2-nistp384 [A-Za-z0-9+/]{100,300}={0,2}")


class Invitation(NamedTuple):
    """What a site needs to ask: the hub's address, the site's name, the authority's fingerprint, and a token."""

    address: str
    site: str
    authority: str
    token: str

    def __str__(self) -> str:
        return f"fcac-invitation/1/{self.address}/{self.site}/{self.authority}/{self.token}"

    @classmethod
    def parse(cls, text: str) -> Invitation:
        """Read an invitation; raise ``ValueError`` for anything else."""
        parts = text.strip().split("/")
        if len(parts) != 6 or parts[:2] != ["fcac-invitation", "1"]:
            raise ValueError("this is not an invitation: one is a single line that begins with fcac-invitation/1/")
        certificates.split_address(parts[2])
        check_site_name(parts[3])
        if not re.fullmatch(r"[0-9a-f]{64}", parts[4]) or not re.fullmatch(r"[A-Za-z0-9_-]{20,60}", parts[5]):
            raise ValueError("this invitation is damaged: copy the whole line")
        return cls(*parts[2:])


def fingerprint(public: str) -> str:
    """Return the fingerprint of a public key in groups that can be read aloud.

    Examples
    --------
    >>> from fcac.deployment.invitations import fingerprint
    >>> fingerprint("ecdsa-sha2-nistp384 AAAA")
    'OCPI BSEE Q6RE CHQ6 4TP3'
    """
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    text = base64.b32encode(digest).decode()[:20]
    return " ".join(text[i : i + 4] for i in range(0, 20, 4))


def authority_fingerprint(root: Path) -> str:
    """Return by what the federation's certificate authority is recognised."""
    pem = (root / "ca" / "ca.crt").read_text("ascii")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


# ------------------------------------------------------------ at the hub


def invite(root: Path, site: str, hours: float = 72.0) -> Invitation:
    """Invite a site; an earlier invitation of the same site is no longer valid."""
    check_site_name(site)
    settings = FederationSettings.load(root)
    if settings.insecure:
        raise ValueError("this federation uses no keys: there is nothing to join with")
    if settings.summing is not None:
        raise ValueError("with secure aggregation sites have keys for summing, which 'init' and 'add' make: use 'add'")
    member = settings.members.get(site)
    if member is not None and member.status == "active":
        raise ValueError(f"site {site} already takes part")
    token = secrets.token_urlsafe(24)
    expires = datetime.now(UTC) + timedelta(hours=hours)
    with _changing(root) as book:
        book[site] = {"token": _hash(token), "expires": expires.isoformat(timespec="seconds"), "key": ""}
    study.note(root, "invited", site=site)
    return Invitation(settings.address, site, authority_fingerprint(root), token)


def ask(root: Path, request: Any) -> dict[str, str]:
    """Answer a site that asks to join; return the files of its bundle, without a key.

    A token is good for one key. The same key may ask again, should the answer have been lost.

    Raises
    ------
    ValueError
        If the token is unknown, used or too old. The text says no more than that.
    """
    wrong = ValueError("this invitation is not valid: it is unknown, used or too old")
    if not isinstance(request, dict):
        raise wrong
    site, token, key = (request.get(name) for name in ("site", "token", "key"))
    if not isinstance(site, str) or not isinstance(token, str) or not isinstance(key, str):
        raise wrong
    if not _KEY.fullmatch(key) or not certificates.public_der(key):
        raise ValueError("the key is not of the expected kind")
    with _changing(root) as book:
        entry = book.get(site)
        if entry is None or not hmac.compare_digest(entry["token"], _hash(token)):
            raise wrong
        if entry["key"] not in ("", key) or datetime.fromisoformat(entry["expires"]) < datetime.now(UTC):
            raise wrong
        fresh = not entry["key"]
        entry["key"] = key
    if fresh:
        study.note(root, "asks to join", site=site, fingerprint=fingerprint(key))
    return study.bundle_files(root, site)


def waiting(root: Path) -> dict[str, str]:
    """Return the sites that have asked to join, with the fingerprints of their keys."""
    return {site: fingerprint(entry["key"]) for site, entry in _read(root).items() if entry["key"]}


def accept(root: Path, site: str) -> str:
    """Let a site that has asked take part; return the fingerprint of its key."""
    with _changing(root) as book:
        entry = book.get(site)
        if entry is None or not entry["key"]:
            raise ValueError(f"site {site} has not asked to join: invite it, and let it run 'fcac federation join'")
        study.admit(root, site, entry["key"])
        del book[site]
    return fingerprint(entry["key"])


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
    """Make a key here, ask the hub to accept its public half, and write the bundle; return the key's fingerprint.

    Parameters
    ----------
    invitation : Invitation
    folder : Path
        Becomes the bundle. If it already holds a key (an earlier attempt), that key is used again.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    private = folder / study.KEY_FILE
    public_path = folder / f"{study.KEY_FILE}.pub"
    if not private.exists() or not public_path.exists():
        public_path.write_text(certificates.make_site_key(private) + "\n", "utf-8")
    public = public_path.read_text("utf-8").strip()
    authority = _fetch_authority(invitation)
    body = {"site": invitation.site, "token": invitation.token, "key": public}
    files = _post(invitation.address, authority, body)
    (folder / "ca.crt").write_text(authority, "ascii")
    for name in ("schema.toml", study.BUNDLE_FILE):
        text = files.get(name)
        if not isinstance(text, str):
            raise ValueError("the hub has not sent a complete bundle")
        (folder / name).write_text(text, "utf-8")
    if study.read_bundle(folder)["site"] != invitation.site:
        raise ValueError("the hub has sent the bundle of another site")
    return fingerprint(public)


def _fetch_authority(invitation: Invitation) -> str:
    """Return the authority's certificate, recognised by its fingerprint: the way there need not be trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    status, data = _talk(invitation.address, context, "GET", b"")
    pem = data.decode("ascii", "replace")
    try:
        found = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest() if status == 200 else ""
    except ValueError:
        found = ""
    if not hmac.compare_digest(found, invitation.authority):
        raise ValueError(f"what answers at {invitation.address} is not the hub that sent this invitation")
    return pem


def _post(address: str, authority: str, body: dict[str, str]) -> dict[str, Any]:
    context = ssl.create_default_context(cadata=authority)
    status, data = _talk(address, context, "POST", json.dumps(body).encode())
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if status != 200 or not isinstance(answer, dict):
        said = plain(str(answer.get("detail", ""))) if isinstance(answer, dict) else ""
        raise ValueError(f"the hub does not let this site join: {said or f'status {status}'}")
    return answer


def _talk(address: str, context: ssl.SSLContext, method: str, body: bytes) -> tuple[int, bytes]:
    host, port = certificates.split_address(address)
    connection = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=context)
    try:
        connection.request(method, "/v1/join", body, {"Content-Length": str(len(body))})
        reply = connection.getresponse()
        return reply.status, reply.read(_MOST_ANSWER)
    except (OSError, http.client.HTTPException) as error:
        raise ValueError(f"the hub at {address} cannot be reached: {plain(str(error))}") from None
    finally:
        connection.close()
