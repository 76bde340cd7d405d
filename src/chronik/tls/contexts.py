"""The context of each new connection: made of PEM files, and made anew when they change.

What is in force was whole when it was loaded: a file that is missing, half-written or does not fit its key leaves the
last good one in force, with one line in the log.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from chronik.errors import ConfigError
from chronik.tls.ciphers import TLS_1_2_CIPHERS
from chronik.tls.settings import NONE, REQUIRED, TLS_1_2, TLS_1_3, Source, TlsSettings

logger = logging.getLogger("chronik.tls")

LOOK_SECONDS: Final = 1.0
"""How often files are looked at. A new certificate is in force soon after it is written."""

CURVE: Final = "prime256v1"
"""P-256: the curve that every client and every standard allows, and the one that OpenSSL is fastest at signing with."""

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_AUTH: Final = {NONE: ssl.CERT_NONE, REQUIRED: ssl.CERT_REQUIRED}

Stamp = tuple[tuple[int, int, int] | None, ...]


class Loaded(msgspec.Struct, frozen=True):
    """What was loaded at one moment."""

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext | None = None
    fingerprint: bytes = b""
    """SHA-256 of the certificate that is shown."""


class TlsContext:
    """`context` is for the next connection."""

    def __init__(self, name: str, settings: TlsSettings, *, dials_too: bool = False) -> None:
        """`name` is what lines of the log call it. With `dials_too` there is a context for connections that this end
        dials: it shows the same certificate, and wants one that the same CAs have signed; its name is not looked at.
        Raises ConfigError."""
        self.name: Final = name
        self.settings: Final = settings
        self._dials_too = dials_too
        self._stamp = _stamp(settings.files)
        self._complained_of: Stamp = ()
        self.loaded = self._load()

    @property
    def context(self) -> ssl.SSLContext:
        return self.loaded.accepting

    def _load(self) -> Loaded:
        settings = self.settings
        texts = _read(settings.key), _read(settings.chain)
        accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _prepare(accepting, settings, texts)
        accepting.verify_mode = _AUTH.get(settings.client_auth, ssl.CERT_OPTIONAL)
        if not self._dials_too:
            return Loaded(accepting)
        dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        dialling.check_hostname = False  # nodes show by the cluster's secret who they are, bound to the certificate
        _prepare(dialling, settings, texts)
        return Loaded(accepting, dialling, _fingerprint(texts[1]))

    def look(self) -> bool:
        """Loads the files if they have changed, and returns whether that was so and succeeded."""
        stamp = _stamp(self.settings.files)
        if stamp in (self._stamp, self._complained_of):
            return False
        try:
            self.loaded = self._load()
        except ConfigError as error:
            self._complained_of = stamp
            logger.error("%s goes on with its certificates of before: %s", self.name, error)
            return False
        self._stamp, self._complained_of = stamp, ()
        logger.info("%s has loaded its certificates anew", self.name)
        return True


async def keep_up_to_date(contexts: Sequence[TlsContext]) -> None:
    """Looks for changed files until cancelled. In a thread: a disk may hang, and a private key takes time to check."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        for context in contexts:
            await asyncio.to_thread(context.look)


def _stamp(paths: Sequence[str]) -> Stamp:
    """Changes whenever a file is replaced or written to."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = os.stat(path)
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def _fingerprint(chain: str) -> bytes:
    begin, end = ssl.PEM_HEADER, ssl.PEM_FOOTER
    first = begin + chain.partition(begin)[2].partition(end)[0] + end
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).digest()


def _prepare(context: ssl.SSLContext, settings: TlsSettings, texts: tuple[str, str]) -> None:
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ecdh_curve(CURVE)
    old = [TLS_1_2_CIPHERS[name] for name in settings.ciphers if name in TLS_1_2_CIPHERS]
    if old:
        context.set_ciphers(":".join(old))
    _load_chain(context, settings, texts)
    if settings.trust is not None:
        _load_trust(context, settings.trust)


def _load_chain(context: ssl.SSLContext, settings: TlsSettings, texts: tuple[str, str]) -> None:
    """A file was read once: key and certificates must be of one moment. OpenSSL takes them from a file only."""
    text = texts[0] if settings.key == settings.chain else "\n".join(texts)
    try:
        with _InMemory(text) as path:
            context.load_cert_chain(path, password=settings.key_password or "")
    except (ssl.SSLError, ValueError, OSError) as error:
        told = "a PRIVATE KEY and a CERTIFICATE in PEM"
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            told = "a key and a certificate that belong together"
        elif "ENCRYPTED" in texts[0]:
            told = "a key that ssl.key.password opens"
        raise _wrong(settings.chain, f"{told} ({_short(error)})") from None


def _load_trust(context: ssl.SSLContext, trust: Source) -> None:
    text = _read(trust)
    expected = "CERTIFICATEs in PEM, one at least"
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise _wrong(trust, f"{expected} ({_short(error)})") from None
    if not context.cert_store_stats()["x509"]:
        raise _wrong(trust, expected)


def _read(source: Source) -> str:
    if source.path is None:
        return source.text
    try:
        return Path(source.path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise _wrong(source, f"a file that can be read ({error.strerror or error})") from None


def _wrong(source: Source, expected: str) -> ConfigError:
    value = "[hidden]" if source.path is None else source.path
    return ConfigError(f"{source.key} = {value!r}: expected {expected}")


def _short(error: Exception) -> str:
    told = str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
    return told.partition(" (_ssl.c")[0]


class _InMemory:
    """A file that nobody else sees, and that never gets to a disk where the system has such files."""

    def __init__(self, text: str) -> None:
        self._text = text.encode()

    def __enter__(self) -> str:
        if hasattr(os, "memfd_create"):
            self._descriptor = os.memfd_create("chronik-tls", os.MFD_CLOEXEC)
            self._path = f"/proc/self/fd/{self._descriptor}"
        else:
            import tempfile

            self._descriptor, self._path = tempfile.mkstemp()
        os.write(self._descriptor, self._text)
        return self._path

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        if not self._path.startswith("/proc/"):
            os.unlink(self._path)
