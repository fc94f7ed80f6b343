"""Keys of one round: agreement, derivation, sealed messages and signatures, all from ``cryptography``."""

from __future__ import annotations

import base64
import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from fcac import persistence

#: Length of a secret that is shared among sites. 128 bits, like the security of X25519 itself.
SEED_BYTES = 16


def new_seed() -> bytes:
    """Return a fresh secret from the operating system."""
    return os.urandom(SEED_BYTES)


def digest(*parts: bytes) -> bytes:
    """Return SHA-256 of several byte strings; lengths are hashed too, so that no two lists collide."""
    result = hashlib.sha256()
    for part in parts:
        result.update(len(part).to_bytes(8, "big"))
        result.update(part)
    return result.digest()


def derive(secret: bytes, purpose: bytes, length: int = 32) -> bytes:
    """Return a key for one purpose (HKDF, RFC 5869)."""
    _, hkdf, hashes = _crypto()
    key: bytes = hkdf(algorithm=hashes.SHA256(), length=length, salt=None, info=purpose).derive(secret)
    return key


class AgreementKey:
    """An X25519 key (RFC 7748) that is determined by a seed; the seed is what is shared among sites.

    >>> a, b = AgreementKey(new_seed()), AgreementKey(new_seed())
    >>> a.agree(b.public, b"purpose") == b.agree(a.public, b"purpose")
    True
    """

    def __init__(self, seed: bytes) -> None:
        x25519 = _crypto()[0]
        self._key = x25519.X25519PrivateKey.from_private_bytes(derive(seed, b"fcac agreement key"))
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes, purpose: bytes) -> bytes:
        """Return the key that this one and another have in common, for one purpose."""
        return derive(self._key.exchange(_public_key(public)), purpose)


@lru_cache(maxsize=4096)
def _public_key(public: bytes) -> Any:
    return _crypto()[0].X25519PublicKey.from_public_bytes(public)


class SigningKey:
    """An Ed25519 key (RFC 8032) that is determined by 32 secret bytes.

    Examples
    --------
    >>> from fcac.aggregation.keys import SigningKey, is_signed
    >>> key = SigningKey.new()
    >>> is_signed(key.public, key.sign(b"text"), b"text"), is_signed(key.public, key.sign(b"text"), b"other")
    (True, False)
    """

    def __init__(self, secret: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric import ed25519

        self.secret = secret
        self._key = ed25519.Ed25519PrivateKey.from_private_bytes(secret)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    @classmethod
    def new(cls) -> SigningKey:
        """Return a fresh key."""
        _crypto()
        return cls(os.urandom(32))

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> SigningKey:
        """Return the key in a file, which is made on first use and which only its owner can read."""
        file = Path(path)
        if not file.exists():
            persistence.write_atomic(file, cls.new().secret.hex().encode(), private=True)
        try:
            return cls(bytes.fromhex(file.read_text("ascii")))
        except ValueError:
            raise ValueError(f"{file} holds no key for summing: put the right file back") from None

    def sign(self, text: bytes) -> bytes:
        """Return the signature of a text."""
        signature: bytes = self._key.sign(text)
        return signature


def fingerprint(public: bytes) -> str:
    """Return by what people recognise a key, in groups that can be read aloud.

    >>> from fcac.aggregation.keys import fingerprint
    >>> fingerprint(bytes(32))
    'WVOI-S4JP-7HPZ-DUCU-ZBGT-PVIR'
    """
    return in_groups(digest(b"fcac fingerprint", public)[:15])


def in_groups(data: bytes) -> str:
    """Return bytes, a multiple of five, as letters and digits in groups of four."""
    text = base64.b32encode(data).decode()
    return "-".join(text[start : start + 4] for start in range(0, len(text), 4))


def is_signed(public: bytes, signature: bytes, text: bytes) -> bool:
    """Return whether the signature of a text is valid under a public key."""
    from cryptography.exceptions import InvalidSignature

    try:
        _verifying_key(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=4096)
def _verifying_key(public: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return ed25519.Ed25519PublicKey.from_public_bytes(public)


def seal(key: bytes, text: bytes, context: bytes) -> bytes:
    """Encrypt and authenticate a text (ChaCha20-Poly1305, RFC 8439).

    The nonce is constant because every key is derived for exactly one message.
    """
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    sealed: bytes = ChaCha20Poly1305(key).encrypt(bytes(12), text, context)
    return sealed


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes | None:
    """Return the text of :func:`seal`; None if it was changed, or sealed with another key or context."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        text: bytes = ChaCha20Poly1305(key).decrypt(bytes(12), sealed, context)
    except InvalidTag:
        return None
    return text


def _crypto() -> tuple[Any, Any, Any]:
    try:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import x25519
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise ImportError("secure aggregation needs cryptography: pip install 'fcac[secure]'") from None
    return x25519, HKDF, hashes
