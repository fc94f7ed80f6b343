"""The hub's audit log: every command and every click of the console, who it was, chained and signed.

``state/audit.jsonl`` is a chain (:mod:`fcac.deployment.audit_log`) whose entries carry the name of the account and a
signature by ``server/audit.key``, which is made with the first entry. An export holds the chain and the public key;
whoever has noted the key's fingerprint can check it without the hub.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from fcac import persistence
from fcac.deployment import audit_log, certificates
from fcac.deployment.settings import STATE

_KEY = Path("server") / "audit.key"


def record(root: Path, command: str, **facts: Any) -> None:
    """Add an entry for a command; what cannot be logged is not done."""
    key = _key(root)
    log = audit_log.AuditLog(root / STATE, lambda data: key.sign(data).hex())
    log.add("command", command=command, account=account(), **facts)


def account() -> str:
    """Return the name of the account that runs this, and the one that has used sudo."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in containers
        name = f"uid {os.getuid()}"
    behind = os.environ.get("SUDO_USER", "")
    return f"{name} (sudo by {behind})" if behind else name


def export(root: Path, out: Path) -> str:
    """Write the log and its public key into one file; return the key's fingerprint."""
    log = root / STATE / audit_log.FILE
    public = _public(_key(root))
    lines = log.read_bytes() if log.exists() else b""
    persistence.write_atomic(out, json.dumps({"fcac_audit": 1, "key": public.hex()}).encode() + b"\n" + lines)
    return hashlib.sha256(public).hexdigest()


def check(source: Path) -> tuple[audit_log.Verdict, str]:
    """Check a hub's log, or an export of one: chain and signatures; return the verdict and the key's fingerprint."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    data = (source / STATE / audit_log.FILE).read_bytes() if source.is_dir() else source.read_bytes()
    if source.is_dir():
        public = _public(_key(source))
    else:
        head, _, data = data.partition(b"\n")
        try:
            public = bytes.fromhex(json.loads(head)["key"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{source} is not an export of a hub's audit log") from None
    key = Ed25519PublicKey.from_public_bytes(public)

    def is_signed(body: bytes, signature: str) -> bool:
        try:
            key.verify(bytes.fromhex(signature), body)
        except (InvalidSignature, ValueError):
            return False
        return True

    return audit_log.verify_lines(data.splitlines(keepends=True), is_signed), hashlib.sha256(public).hexdigest()


def _key(root: Path) -> Any:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = root / _KEY
    if not path.exists():
        made = Ed25519PrivateKey.generate()
        raw = serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
        certificates.write_private(path, made.private_bytes(*raw).hex().encode())
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text("ascii")))


def _public(key: Any) -> bytes:
    data: bytes = key.public_key().public_bytes_raw()
    return data
