"""Certificates and keys, checked by Python's own TLS: of another authority, or expired, they are refused."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from fcac.deployment import certificates
from testing import federation_study  # noqa: F401  (skips where the extra is not installed)
from testing.waiting import PATIENCE


def handshake(server: Path, ca: Path, host: str) -> str:
    """Connect to a TLS server with this certificate, trusting this authority; return the error, or ''."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server / "server.crt", server / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)

        def serve() -> None:
            try:
                connection, _ = listener.accept()
                with context.wrap_socket(connection, server_side=True):
                    pass
            except OSError:
                pass  # the client hung up, which is what some of these tests want

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            trust = ssl.create_default_context(cafile=str(ca / "ca.crt"))
            with (
                socket.create_connection(listener.getsockname(), timeout=PATIENCE) as plain,
                trust.wrap_socket(plain, server_hostname=host),
            ):
                return ""
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        finally:
            thread.join()


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    folder = tmp_path / "ca"
    folder.mkdir()
    certificates.make_authority(folder, "study")
    return folder


def test_the_server_is_known_by_its_names(authority: Path, tmp_path: Path) -> None:
    certificates.make_server_certificate(authority, tmp_path, ["hub.example", "127.0.0.1"])
    assert handshake(tmp_path, authority, "hub.example") == ""
    assert handshake(tmp_path, authority, "127.0.0.1") == ""
    assert "mismatch" in handshake(tmp_path, authority, "other.example")


def test_an_expired_certificate_is_refused(authority: Path, tmp_path: Path) -> None:
    certificates.make_server_certificate(authority, tmp_path, ["127.0.0.1"], days=1, start=-2)
    assert "expired" in handshake(tmp_path, authority, "127.0.0.1")


def test_a_certificate_of_another_authority_is_refused(authority: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    certificates.make_authority(other, "study")
    certificates.make_server_certificate(other, tmp_path, ["127.0.0.1"])
    assert handshake(tmp_path, other, "127.0.0.1") == ""
    assert handshake(tmp_path, authority, "127.0.0.1") != ""


def test_private_keys_are_private(authority: Path, tmp_path: Path) -> None:
    certificates.make_server_certificate(authority, tmp_path, ["127.0.0.1"])
    certificates.make_key(tmp_path / "node.key", "north")
    for path in (authority / "ca.key", tmp_path / "server.key", tmp_path / "node.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_site_is_known_by_the_key_in_its_certificate(authority: Path, tmp_path: Path) -> None:
    one, two = (certificates.make_key(tmp_path / name, "north") for name in ("one", "two"))
    assert certificates.make_key(tmp_path / "one", "other") != one  # another request for the same key
    found = certificates.sign_site(authority, "north", one)
    key = certificates.key_fingerprint(ssl.PEM_cert_to_DER_cert(found))
    assert key == certificates.request_fingerprint(one) != certificates.request_fingerprint(two)
    again = certificates.sign_site(authority, "south", certificates.make_key(tmp_path / "one", "other"))
    assert certificates.key_fingerprint(ssl.PEM_cert_to_DER_cert(again)) == key


@pytest.mark.parametrize("text", ["", "nonsense", "\u00e4", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END"])
def test_what_is_no_request(text: str) -> None:
    with pytest.raises(ValueError, match="expected kind"):
        certificates.request_fingerprint(text)


def test_other_kinds_of_keys_are_refused() -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    keys = [(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()), (ed25519.Ed25519PrivateKey.generate(), None)]
    for key, digest in keys:
        request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, digest)
        with pytest.raises(ValueError, match="expected kind"):
            certificates.request_fingerprint(request.public_bytes(serialization.Encoding.PEM).decode())


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("hub", False)],
)
def test_loopback(host: str, expected: bool) -> None:
    assert certificates.is_loopback(host) is expected


@pytest.mark.parametrize("address", ["hub", "hub:", ":8000", "hub:0", "hub:99999", "hub:x"])
def test_an_address_needs_host_and_port(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        certificates.split_address(address)
