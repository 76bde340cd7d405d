"""SSL contexts that are loaded from PEM files and reloaded when the files change.

Only complete sets are used: if a file is missing, half-written or does not match its key, the previous context stays in
use and an error is logged.
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
from chronik.tls.settings import (
    CLIENT_AUTH_NONE,
    CLIENT_AUTH_REQUIRED,
    TLS_1_2,
    TLS_1_2_CIPHERS,
    TLS_1_3,
    PemSource,
    TlsSettings,
)

logger = logging.getLogger("chronik.tls")

RELOAD_INTERVAL_SECONDS: Final = 1.0
"""Seconds between checks for changed certificate files."""

CURVE: Final = "prime256v1"
"""P-256, which every client supports and which OpenSSL signs fastest with."""

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: Final = {CLIENT_AUTH_NONE: ssl.CERT_NONE, CLIENT_AUTH_REQUIRED: ssl.CERT_REQUIRED}

FileStamp = tuple[tuple[int, int, int] | None, ...]


class LoadedContexts(msgspec.Struct, frozen=True):
    """The SSL contexts that were created from one consistent version of the certificate files."""

    server_context: ssl.SSLContext
    client_context: ssl.SSLContext | None = None
    fingerprint: bytes = b""
    """SHA-256 fingerprint of this end's certificate."""


class ReloadableTlsContext:
    """A TLS context of a listener or of peer connections that is reloaded when its certificate files change."""

    def __init__(self, name: str, settings: TlsSettings, *, with_client_context: bool = False) -> None:
        """Load the certificate files and create the SSL contexts.

        Args:
            name: The name used in log lines.
            settings: The PEM files and TLS options.
            with_client_context: Whether to load a context for outgoing connections as well. It presents the same
                certificate and requires one signed by the same CAs, without checking the host name.

        Raises:
            ConfigError: A file cannot be read or is invalid.
        """
        self.name: Final = name
        self.settings: Final = settings
        self._dials_too = with_client_context
        self._file_stamp = _read_file_stamps(settings.files)
        self._failed_stamp: FileStamp = ()
        self.loaded = self._load()

    @property
    def context(self) -> ssl.SSLContext:
        """Return the SSL context for the next accepted connection."""
        return self.loaded.server_context

    def _load(self) -> LoadedContexts:
        settings = self.settings
        texts = _read(settings.key), _read(settings.chain)
        accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _configure_context(accepting, settings, texts)
        accepting.verify_mode = _VERIFY_MODES.get(settings.client_auth, ssl.CERT_OPTIONAL)
        if not self._dials_too:
            return LoadedContexts(accepting)
        dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        dialling.check_hostname = False  # nodes authenticate with the cluster secret, bound to the certificate
        _configure_context(dialling, settings, texts)
        return LoadedContexts(accepting, dialling, _compute_fingerprint(texts[1]))

    def reload_if_changed(self) -> bool:
        """Reload the certificate files if they have changed, and return whether the new certificate is in use."""
        stamp = _read_file_stamps(self.settings.files)
        if stamp in (self._file_stamp, self._failed_stamp):
            return False
        try:
            self.loaded = self._load()
        except ConfigError as error:
            self._failed_stamp = stamp
            logger.error("%s: certificate reload failed: %s; keeping the current certificate", self.name, error)
            return False
        self._file_stamp, self._failed_stamp = stamp, ()
        logger.info("%s: certificate reloaded", self.name)
        return True


async def reload_changed_certificates(contexts: Sequence[ReloadableTlsContext]) -> None:
    """Reload changed certificate files periodically. File access uses a thread, because disks may block."""
    while True:
        await asyncio.sleep(RELOAD_INTERVAL_SECONDS)
        for context in contexts:
            await asyncio.to_thread(context.reload_if_changed)


def _read_file_stamps(paths: Sequence[str]) -> FileStamp:
    """Return the modification time, size and inode of each file, to detect files that were written or replaced."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = os.stat(path)
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def _compute_fingerprint(chain: str) -> bytes:
    begin, end = ssl.PEM_HEADER, ssl.PEM_FOOTER
    first = begin + chain.partition(begin)[2].partition(end)[0] + end
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).digest()


def _configure_context(context: ssl.SSLContext, settings: TlsSettings, texts: tuple[str, str]) -> None:
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ecdh_curve(CURVE)
    old = [TLS_1_2_CIPHERS[name] for name in settings.ciphers if name in TLS_1_2_CIPHERS]
    if old:
        context.set_ciphers(":".join(old))
    _load_certificate_chain(context, settings, texts)
    if settings.trust is not None:
        _load_trust_store(context, settings.trust)


def _load_certificate_chain(context: ssl.SSLContext, settings: TlsSettings, texts: tuple[str, str]) -> None:
    """Load a private key and certificate chain into an SSL context, through a file as OpenSSL requires."""
    text = texts[0] if settings.key == settings.chain else "\n".join(texts)
    try:
        with _PrivateFile(text) as path:
            context.load_cert_chain(path, password=settings.key_password or "")
    except (ssl.SSLError, ValueError, OSError) as error:
        expected = "a PRIVATE KEY and a CERTIFICATE in PEM format"
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            expected = "a key and a certificate that match"
        elif "ENCRYPTED" in texts[0]:
            expected = "a key that ssl.key.password decrypts"
        raise _build_config_error(settings.chain, f"{expected} ({_format_tls_error(error)})") from None


def _load_trust_store(context: ssl.SSLContext, trust: PemSource) -> None:
    text = _read(trust)
    expected = "at least one CERTIFICATE in PEM format"
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise _build_config_error(trust, f"{expected} ({_format_tls_error(error)})") from None
    if not context.cert_store_stats()["x509"]:
        raise _build_config_error(trust, expected)


def _read(source: PemSource) -> str:
    if source.path is None:
        return source.text
    try:
        return Path(source.path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise _build_config_error(source, f"a readable file ({error.strerror or error})") from None


def _build_config_error(source: PemSource, expected: str) -> ConfigError:
    value = "[hidden]" if source.path is None else source.path
    return ConfigError(f"{source.key} = {value!r}: expected {expected}")


def _format_tls_error(error: Exception) -> str:
    message = str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
    return message.partition(" (_ssl.c")[0]


class _PrivateFile:
    """A private file for OpenSSL: an anonymous memory file if the system supports it, else a temporary file."""

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
