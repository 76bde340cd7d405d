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
from pathlib import Path
from typing import Any, Final

from chronik.errors import ChronikError, ConfigError
from chronik.limits import JWKS_BYTES_MAX

logger = logging.getLogger("chronik.security")

READ_SECONDS_MAX: Final = 10.0
"""For an address to answer."""

UNKNOWN_KEY_SECONDS: Final = 10.0
"""How often at most they are read again for keys that nobody knows: anybody can name such a key."""

Read = Callable[[], bytes]


class KeysUnavailable(ChronikError):
    """There are no keys, since they could not be read even once."""


def reader_of(url: str) -> Read:
    """Raises ConfigError unless it is file://, http:// or https://."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        path = Path(urllib.request.url2pathname(parts.path))
        return lambda: _bounded(path.open("rb"))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"sasl.oauthbearer.jwks.endpoint.url = {url!r}: expected an address that begins with file://, http:// or "
            "https://"
        )
    return lambda: _bounded(urllib.request.urlopen(url, timeout=READ_SECONDS_MAX))


def _bounded(source: Any) -> bytes:
    with source:
        data: bytes = source.read(JWKS_BYTES_MAX + 1)
    if len(data) > JWKS_BYTES_MAX:
        raise ValueError(f"more than {JWKS_BYTES_MAX} bytes")
    return data


class KeySource:
    """Is asked in threads: the first time it waits for the keys, later others read them meanwhile."""

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
        self._reading = threading.Lock()
        self._keys: dict[str | None, Any] | None = None
        self._looked_at = float("-inf")

    def key(self, kid: str | None) -> Any:
        """Returns the key of that name, or the only one for a token that names none; None if there is none. Raises
        KeysUnavailable."""
        age = self._monotonic() - self._looked_at
        keys = self._keys
        if keys is None:
            self._read_again(self._retry_seconds)
        elif _found(keys, kid) is None:
            self._read_again(max(self._retry_seconds, UNKNOWN_KEY_SECONDS))
        elif age >= self._refresh_seconds and not self._reading.locked():
            arguments = (self._refresh_seconds,)
            threading.Thread(target=self._read_again, args=arguments, name="jwks", daemon=True).start()
        if self._keys is None:
            raise KeysUnavailable("the keys of tokens cannot be read")
        return _found(self._keys, kid)

    def _read_again(self, seconds: float) -> None:
        """Does nothing when somebody has, less than so many seconds ago."""
        with self._reading:
            if self._monotonic() - self._looked_at < seconds:
                return
            self._looked_at = self._monotonic()
            try:
                self._keys = parse_keys(self._read())
            except Exception as error:  # whatever it is, those from before hold
                logger.warning("the keys of tokens cannot be read: %s", error)


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
