"""Certificates for tests: CAs and issued certificates, created once per run."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path

from chronik.tls.certificate_authority import CertificateAuthority, IssuedCertificate
from chronik.tls.settings import CLIENT_AUTH_NONE, TLS_VERSIONS, PemSource, TlsSettings

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


DEFAULT_CA = "ours"


@cache
def _authority(name: str) -> CertificateAuthority:
    return CertificateAuthority(name)


def certificate_authority(name: str = DEFAULT_CA) -> CertificateAuthority:
    return _authority(name)


@cache
def issue_certificate(subject: str, by: str = DEFAULT_CA) -> IssuedCertificate:
    return certificate_authority(by).issue(subject, LOCAL_HOSTS)


def replace_file(path: Path, content: bytes) -> str:
    """Replace the file atomically, as tools do that renew certificates, and return its path."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    temporary.replace(path)
    return str(path)


def server_settings(
    folder: Path,
    *,
    client_auth: str = CLIENT_AUTH_NONE,
    versions: tuple[str, ...] = TLS_VERSIONS,
    ciphers: tuple[str, ...] = (),
) -> TlsSettings:
    """Return TLS settings of a server, with `node.pem` and `trusted.pem` in the directory."""
    store = PemSource(
        "broker: ssl.keystore.location", replace_file(folder / "node.pem", issue_certificate("CN=node").keystore_pem)
    )
    trust = PemSource(
        "broker: ssl.truststore.location", replace_file(folder / "trusted.pem", certificate_authority().certificate_pem)
    )
    return TlsSettings(store, store, trust, client_auth, versions, ciphers)


def client_context(folder: Path, subject: str | None = None, by: str = DEFAULT_CA) -> ssl.SSLContext:
    """Return the context of a client that trusts our CA and, if it has a subject, presents a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=certificate_authority().certificate_pem.decode())
    if subject is not None:
        context.load_cert_chain(replace_file(folder / "client.pem", issue_certificate(subject, by).keystore_pem))
    return context
