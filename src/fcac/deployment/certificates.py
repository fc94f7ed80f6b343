"""Certificates and keys: a private certificate authority, the server's certificate, and a key pair for each site.

All keys are elliptic-curve keys (P-384). Private keys are written with mode 0600 and never leave the directory for
which they are made, except a site's own key, which is in the site's bundle.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Any

from fcac import persistence

CA_DAYS = 3650
SERVER_DAYS = 825


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``.

    Examples
    --------
    >>> from fcac.deployment.certificates import split_address
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
    """Write ``ca.key`` and ``ca.crt``: the authority that signs only the server's certificate."""
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
    """Write ``server.key`` and ``server.crt``, valid for these hosts (names or addresses).

    Parameters
    ----------
    authority : Path
        Directory of ``ca.key`` and ``ca.crt``.
    directory : Path
    hosts : list of str
        The part of the address before the colon; each becomes a subject alternative name.
    days : float
    start : float
        Days from now at which it becomes valid; negative for the past.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID

    signer: Any = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), password=None)
    issuer = x509.load_pem_x509_certificate((authority / "ca.crt").read_bytes())
    key = _new_key()
    certificate = (
        _certificate(_name(hosts[0]), issuer.subject, key.public_key(), days, start)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA384())
    )
    write_private(directory / "server.key", _key_pem(key))
    persistence.write_atomic(directory / "server.crt", _certificate_pem(certificate))


def server_certificate_ends(path: Path) -> datetime.datetime:
    """Return when a certificate expires."""
    from cryptography import x509

    ends: datetime.datetime = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    return ends


def make_site_key(path: Path) -> str:
    """Write a site's private key (OpenSSH format) and return its public key as one line of text."""
    from cryptography.hazmat.primitives import serialization

    key = _new_key()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public: bytes = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_private(path, private)
    return public.decode()


def public_der(line: str) -> bytes:
    """Return a public key, given as OpenSSH text, in DER, the form in which keys are compared; b"" if it is invalid."""
    from cryptography.hazmat.primitives import serialization

    try:
        return _public_bytes(serialization.load_ssh_public_key(line.encode()))
    except ValueError:
        return b""


def pem_der(pem: bytes) -> bytes:
    """Return a public key, given in PEM (as stored by Flower), in the form of :func:`public_der`."""
    from cryptography.hazmat.primitives import serialization

    try:
        return _public_bytes(serialization.load_pem_public_key(pem))
    except ValueError:
        return b"not a key"


def public_pem(line: str) -> bytes:
    """Return a public key, given as OpenSSH text, in PEM."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_ssh_public_key(line.encode())
    data: bytes = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return data


def _public_bytes(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    data: bytes = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return data


def _new_key() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ImportError("certificates and keys need the extra: pip install 'fcac[flower]'") from None
    return ec.generate_private_key(ec.SECP384R1())


def _name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _certificate(subject: Any, issuer: Any, key: Any, days: float, start: float = 0.0) -> Any:
    from cryptography import x509

    # five minutes of tolerance for clocks that differ
    begin = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=start) - datetime.timedelta(minutes=5)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=days, minutes=5))
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
