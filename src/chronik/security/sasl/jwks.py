"""JSON Web Key Set (JWKS) that verifies tokens, loaded from a file or URL and reloaded in a background thread.

A token with an unknown key id triggers a rate-limited reload, so that new keys are accepted quickly. The previous keys
stay in use while a reload is running.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from chronik.errors import ChronikError, ConfigError
from chronik.limits import JWKS_BYTES_MAX
from chronik.security.http_download import download_url, read_with_size_limit

logger = logging.getLogger("chronik.security")

READ_SECONDS_MAX: Final = 10.0
"""Timeout in seconds for loading the keys, and for clients that wait for them."""

UNKNOWN_KEY_SECONDS: Final = 10.0
"""Minimum interval in seconds between reloads caused by unknown key ids, which any client can send."""

KeyReader = Callable[[], bytes]

KEYS_UNAVAILABLE_MESSAGE: Final = "the JWKS of token keys cannot be loaded"


class KeysUnavailable(ChronikError):
    """The token validation has no keys, because the key set has never been loaded successfully."""


class KeysLoading(ChronikError):
    """The key set is being loaded; the caller must retry when the future `loaded` is done."""

    def __init__(self, reading: Future[None]) -> None:
        super().__init__(KEYS_UNAVAILABLE_MESSAGE)
        self.loaded = reading


def create_key_reader(url: str) -> KeyReader:
    """Return a function that loads the key set from a file://, http:// or https:// URL.

    Raises:
        ConfigError: The URL has another scheme.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        path = Path(urllib.request.url2pathname(parts.path))
        return lambda: read_with_size_limit(path.open("rb"), JWKS_BYTES_MAX)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"sasl.oauthbearer.jwks.endpoint.url = {url!r}: expected a URL that starts with file://, http:// or "
            "https://"
        )
    return lambda: download_url(url, READ_SECONDS_MAX, JWKS_BYTES_MAX)


class JwksCache:
    """A thread-safe cache of a JSON Web Key Set, which is reloaded in a thread so that lookups never block."""

    def __init__(
        self,
        read: KeyReader,
        refresh_seconds: float,
        retry_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._refresh_seconds = refresh_seconds
        self._retry_seconds = retry_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._reading: Future[None] | None = None
        self._keys: dict[str | None, Any] | None = None
        self._loaded_at = float("-inf")

    def find_key(self, kid: str | None) -> Any:
        """Return the key with this id, or the only key if the token contains no key id; None if there is no such key.

        Raises:
            KeysLoading: The keys are being loaded.
            KeysUnavailable: The keys could not be loaded.
        """
        keys = self._keys
        if keys is not None and _find_key(keys, kid) is not None:
            self._reload_keys_if_older(self._refresh_seconds)
        else:
            reading = self._reload_keys_if_older(max(self._retry_seconds, 0.0 if keys is None else UNKNOWN_KEY_SECONDS))
            if reading is not None:
                raise KeysLoading(reading)
        if self._keys is None:
            raise KeysUnavailable(KEYS_UNAVAILABLE_MESSAGE)
        return _find_key(self._keys, kid)

    def _reload_keys_if_older(self, seconds: float) -> Future[None] | None:
        """Reload the key set and return the reload's future, or None if the last reload is newer than `seconds`."""
        with self._lock:
            if self._reading is None:
                if self._monotonic() - self._loaded_at < seconds:
                    return None
                self._reading = Future()
                self._reading.set_running_or_notify_cancel()  # a waiter cannot cancel it for the others
                threading.Thread(target=self._reload, args=(self._reading,), name="jwks", daemon=True).start()
            return self._reading

    def _reload(self, reading: Future[None]) -> None:
        try:
            self._keys = parse_keys(self._read())
        except Exception as error:  # any error: keep the previous keys
            logger.warning("token validation: %s: %s; keeping the previous keys", KEYS_UNAVAILABLE_MESSAGE, error)
        with self._lock:
            self._loaded_at = self._monotonic()
            self._reading = None
        reading.set_result(None)


def parse_keys(data: bytes) -> dict[str | None, Any]:
    """Return the signature keys by key id, ignoring keys for other purposes.

    Raises:
        ValueError: The data is not a JSON Web Key Set.
    """
    from joserfc.jwk import import_key

    document = json.loads(data)
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise ValueError("not a JSON Web Key Set")
    keys: dict[str | None, Any] = {}
    for each in document["keys"]:
        if not isinstance(each, dict) or each.get("kty") not in ("RSA", "EC", "OKP") or each.get("use", "sig") != "sig":
            continue
        try:
            keys[each.get("kid")] = import_key(each)
        except Exception as error:
            logger.warning("JWKS key ignored: %s", type(error).__name__)
    return keys


def _find_key(keys: dict[str | None, Any], kid: str | None) -> Any:
    if kid is None and len(keys) == 1:
        return next(iter(keys.values()))
    return keys.get(kid)
