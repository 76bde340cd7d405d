"""Certificates for tests: CAs and what they sign, made once, written where a test wants them."""

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
    """Puts it there at once, as tools do that renew certificates."""
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(content)
    beside.replace(path)
    return str(path)


def settings(
    folder: Path, *, client_auth: str = NONE, versions: tuple[str, ...] = VERSIONS, ciphers: tuple[str, ...] = ()
) -> TlsSettings:
    """A server's, with its files in that folder: `node.pem` and `trusted.pem`."""
    store = Source("broker: ssl.keystore.location", written(folder / "node.pem", issued("CN=node").both))
    trust = Source("broker: ssl.truststore.location", written(folder / "trusted.pem", authority().certificate))
    return TlsSettings(store, store, trust, client_auth, versions, ciphers)


def client_context(folder: Path, subject: str | None = None, by: str = OURS) -> ssl.SSLContext:
    """A client's that trusts our CA, and shows a certificate if it has a subject."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority().certificate.decode())
    if subject is not None:
        context.load_cert_chain(written(folder / "client.pem", issued(subject, by).both))
    return context
