"""Certificates for tests: CAs and issued certificates, created once per run."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path

from chronik.tls.issuing import Authority, Issued
from chronik.tls.settings import NONE, VERSIONS, Source, TlsSettings

LOCAL = ("localhost", "127.0.0.1", "::1")


OURS = "ours"


@cache
def _authority(name: str) -> Authority:
    return Authority(name)


def authority(name: str = OURS) -> Authority:
    return _authority(name)


@cache
def issued(subject: str, by: str = OURS) -> Issued:
    return authority(by).issue(subject, LOCAL)


def written(path: Path, content: bytes) -> str:
    """Replace the file atomically, as tools do that renew certificates, and return its path."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    temporary.replace(path)
    return str(path)


def settings(
    folder: Path, *, client_auth: str = NONE, versions: tuple[str, ...] = VERSIONS, ciphers: tuple[str, ...] = ()
) -> TlsSettings:
    """Return TLS settings of a server, with `node.pem` and `trusted.pem` in the directory."""
    store = Source("broker: ssl.keystore.location", written(folder / "node.pem", issued("CN=node").both))
    trust = Source("broker: ssl.truststore.location", written(folder / "trusted.pem", authority().certificate))
    return TlsSettings(store, store, trust, client_auth, versions, ciphers)


def client_context(folder: Path, subject: str | None = None, by: str = OURS) -> ssl.SSLContext:
    """Return the context of a client that trusts our CA and, if it has a subject, presents a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority().certificate.decode())
    if subject is not None:
        context.load_cert_chain(written(folder / "client.pem", issued(subject, by).both))
    return context
