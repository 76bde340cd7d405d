"""The keys that tokens are signed with, JWKS: from a file or an address, and read again now and then in a thread.

A new key is found at once: a token that names one nobody knows has them read again, though not again and again. While
they are being read, those from before hold.
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
from chronik.security.sasl.fetching import bounded, fetched

logger = logging.getLogger("chronik.security")

READ_SECONDS_MAX: Final = 10.0
"""For an address to answer in all, and for whoever waits for it."""

UNKNOWN_KEY_SECONDS: Final = 10.0
"""How often at most they are read again for keys that nobody knows: anybody can name such a key."""

Read = Callable[[], bytes]


UNREADABLE: Final = "the keys of tokens cannot be read"


class KeysUnavailable(ChronikError):
    """There are no keys, since they could not be read even once."""


class KeysAwaited(ChronikError):
    """They are being read: ask again when that is done."""

    def __init__(self, reading: Future[None]) -> None:
        super().__init__(UNREADABLE)
        self.reading = reading


def reader_of(url: str) -> Read:
    """Raises ConfigError unless it is file://, http:// or https://."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        path = Path(urllib.request.url2pathname(parts.path))
        return lambda: bounded(path.open("rb"), JWKS_BYTES_MAX)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"sasl.oauthbearer.jwks.endpoint.url = {url!r}: expected an address that begins with file://, http:// or "
            "https://"
        )
    return lambda: fetched(url, READ_SECONDS_MAX, JWKS_BYTES_MAX)


class KeySource:
    """Is asked in threads, and read in others of its own: whoever needs what is being read is told to come again, so
    that it takes nobody's place meanwhile."""

    def __init__(
        self,
        read: Read,
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
        self._looked_at = float("-inf")

    def key(self, kid: str | None) -> Any:
        """Returns the key of that name, or the only one for a token that names none; None if there is none. Raises
        KeysAwaited and KeysUnavailable."""
        keys = self._keys
        if keys is not None and _found(keys, kid) is not None:
            self._read_again(self._refresh_seconds)
        else:
            reading = self._read_again(max(self._retry_seconds, 0.0 if keys is None else UNKNOWN_KEY_SECONDS))
            if reading is not None:
                raise KeysAwaited(reading)
        if self._keys is None:
            raise KeysUnavailable(UNREADABLE)
        return _found(self._keys, kid)

    def _read_again(self, seconds: float) -> Future[None] | None:
        """Returns what is done when they are read; None when somebody has done so, less than so many seconds ago."""
        with self._lock:
            if self._reading is None:
                if self._monotonic() - self._looked_at < seconds:
                    return None
                self._reading = Future()
                self._reading.set_running_or_notify_cancel()  # nobody who waits for it can end it for others
                threading.Thread(target=self._read_now, args=(self._reading,), name="jwks", daemon=True).start()
            return self._reading

    def _read_now(self, reading: Future[None]) -> None:
        try:
            self._keys = parse_keys(self._read())
        except Exception as error:  # whatever it is, those from before hold
            logger.warning("%s: %s", UNREADABLE, error)
        with self._lock:
            self._looked_at = self._monotonic()
            self._reading = None
        reading.set_result(None)


def parse_keys(data: bytes) -> dict[str | None, Any]:
    """Returns keys by their names. Those that cannot be used for signatures are left out. Raises ValueError."""
    from joserfc.jwk import import_key

    told = json.loads(data)
    if not isinstance(told, dict) or not isinstance(told.get("keys"), list):
        raise ValueError("no JSON Web Key Set")
    keys: dict[str | None, Any] = {}
    for each in told["keys"]:
        if not isinstance(each, dict) or each.get("kty") not in ("RSA", "EC", "OKP") or each.get("use", "sig") != "sig":
            continue
        try:
            keys[each.get("kid")] = import_key(each)
        except Exception as error:
            logger.warning("a key of tokens cannot be used: %s", type(error).__name__)
    return keys


def _found(keys: dict[str | None, Any], kid: str | None) -> Any:
    if kid is None and len(keys) == 1:
        return next(iter(keys.values()))
    return keys.get(kid)
