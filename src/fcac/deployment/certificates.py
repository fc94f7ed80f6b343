"""Certificates and keys: a private certificate authority, the server's certificate, and one for each site's own key.

All keys are elliptic-curve keys (P-384). Private keys are written with mode 0600 and never leave the directory for
which they are made.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import os
from pathlib import Path
from typing import Any

from fcac import persistence

CA_DAYS = 3650
SERVER_DAYS = 825
SITE_DAYS = 825
# Certificates are valid from a day before they are made: clocks may differ.
_TOLERANCE = datetime.timedelta(days=1)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``.

    >>> split_address("hub.example:8443"), split_address("[::1]:8443")
    (('hub.example', 8443), ('::1', 8443))
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"address {address!r}: write it as host:port, for example hub.example:8443")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine itself: a loopback address or ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def make_authority(directory: Path, name: str, days: int = CA_DAYS) -> None:
    """Write ``ca.key`` and ``ca.crt``: the authority that signs the certificates of the server and of the sites."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key = _new_key()
    subject = _name(f"{name} authority")
    certificate = (
        _certificate(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    write_private(directory / "ca.key", _key_pem(key))
    persistence.write_atomic(directory / "ca.crt", _certificate_pem(certificate))


def make_server_certificate(
    authority: Path, directory: Path, hosts: list[str], days: float = SERVER_DAYS, start: float = 0.0
) -> None:
    """Write ``server.key`` and ``server.crt``, valid for these hosts (names or addresses), signed by the authority.

    Each host, the part of the address before the colon, becomes a subject alternative name. `start` is in days from
    now, negative for the past.
    """
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = _new_key()
    names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    certificate = _signed(authority, hosts[0], key.public_key(), ExtendedKeyUsageOID.SERVER_AUTH, days, start, names)
    write_private(directory / "server.key", _key_pem(key))
    persistence.write_atomic(directory / "server.crt", certificate)


def make_key(path: Path, name: str) -> str:
    """Write a private key unless there is one, and return a request to certify it (PEM)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    if path.exists():
        key: Any = serialization.load_pem_private_key(path.read_bytes(), password=None)
    else:
        key = _new_key()
        write_private(path, _key_pem(key))
    request = x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, hashes.SHA384())
    text: bytes = request.public_bytes(serialization.Encoding.PEM)
    return text.decode("ascii")


def request_fingerprint(request: str) -> str:
    """Return the fingerprint of the key in a request; ValueError unless it is a P-384 key whose owner has signed it."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        found = x509.load_pem_x509_csr(request.encode("ascii"))
        key = found.public_key()
        sound = (
            found.is_signature_valid and isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp384r1"
        )
    except Exception:
        # whatever a stranger has sent, it is no request
        sound = False
    if not sound:
        raise ValueError("the key is not of the expected kind")
    return _fingerprint(key)


def sign_site(authority: Path, site: str, request: str, days: float = SITE_DAYS) -> str:
    """Return a certificate (PEM) for the key in a request, under the name that the hub gives it."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    request_fingerprint(request)
    key = x509.load_pem_x509_csr(request.encode("ascii")).public_key()
    return _signed(authority, site, key, ExtendedKeyUsageOID.CLIENT_AUTH, days).decode("ascii")


def key_fingerprint(der: bytes) -> str:
    """Return the fingerprint of the key in a certificate (DER)."""
    name = hashlib.sha256(der).digest()
    if name not in _FINGERPRINTS:
        from cryptography import x509

        if len(_FINGERPRINTS) >= _MOST_FINGERPRINTS:
            _FINGERPRINTS.clear()
        _FINGERPRINTS[name] = _fingerprint(x509.load_der_x509_certificate(der).public_key())
    return _FINGERPRINTS[name]


# Only certificates of the own authority get here, again with every request.
_FINGERPRINTS: dict[bytes, str] = {}
_MOST_FINGERPRINTS = 10_000


def _fingerprint(key: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    data = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(data).hexdigest()


def spoken(fingerprint: str) -> str:
    """Return a fingerprint in groups that can be read aloud.

    >>> spoken("00" * 32)
    'AAAA AAAA AAAA AAAA AAAA'
    """
    text = base64.b32encode(bytes.fromhex(fingerprint)).decode()[:20]
    return " ".join(text[i : i + 4] for i in range(0, 20, 4))


def ends(path: Path) -> datetime.datetime:
    """Return when a certificate expires."""
    from cryptography import x509

    end: datetime.datetime = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    return end


def is_issued_by(path: Path, authority: Path) -> bool:
    """Return whether a certificate was signed by this authority."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        issuer = x509.load_pem_x509_certificate(authority.read_bytes())
        x509.load_pem_x509_certificate(path.read_bytes()).verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _signed(
    authority: Path, name: str, key: Any, usage: Any, days: float, start: float = 0.0, names: Any = None
) -> bytes:
    """Return a certificate (PEM) signed by the authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    try:
        signer: Any = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), password=None)
    except FileNotFoundError:
        raise ValueError(
            f"{authority / 'ca.key'} is missing: it signs certificates; bring it back for a while"
        ) from None
    issuer = x509.load_pem_x509_certificate((authority / "ca.crt").read_bytes())
    builder = (
        _certificate(_name(name), issuer.subject, key, days, start)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return _certificate_pem(builder.sign(signer, hashes.SHA384()))


def _new_key() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ImportError("certificates and keys need the extra: pip install 'fcac[federation]'") from None
    return ec.generate_private_key(ec.SECP384R1())


def _name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _certificate(subject: Any, issuer: Any, key: Any, days: float, start: float = 0.0) -> Any:
    from cryptography import x509

    begin = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=start)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _TOLERANCE)
        .not_valid_after(begin + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    data: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return data


def _certificate_pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    data: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return data


def write_private(path: Path, data: bytes) -> None:
    """Write a secret; the file is at no time readable by others."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
