"""The state of a login in progress, sealed in a cookie.

The provider redirects the browser back to any node of the cluster, so no node stores the state. Instead, the browser
keeps it in a cookie that only nodes with the same key can read and create.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from chronik.errors import ChronikError

LOGIN_SECONDS_MAX: Final = 600
"""Maximum seconds between the start of a login and the redirect back to the console."""

RETURN_TO_CHARACTERS_MAX: Final = 1000
"""Maximum length of the console page that is shown after the login."""


class InvalidLoginState(ChronikError):
    """The cookie of a login is missing, too old, or sealed with another key."""


class LoginState(msgspec.Struct, frozen=True):
    """The random values of one login, and the page to show after it."""

    state: str
    """Identifies the login in the provider's redirect, so that no other site can complete it."""
    nonce: str
    """Identifies the login in the ID token, so that a stolen token is not accepted."""
    verifier: str
    """Proves to the provider that the client that redeems the code has started the login (PKCE)."""
    return_to: str
    """The fragment of the console's URL to show after the login, such as `#/topics`."""

    def __repr__(self) -> str:
        return f"LoginState(return_to={self.return_to!r})"

    @property
    def challenge(self) -> str:
        """The PKCE challenge: the hash of the verifier."""
        return urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()

    def is_state(self, text: str) -> bool:
        """Return whether a text is the state of this login, in constant time."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.state.encode())


def create_login_state(return_to: str = "") -> LoginState:
    """Return a login state with new random values. A `return_to` that is not a page of the console is ignored."""
    is_page = return_to.startswith("#/") and len(return_to) <= RETURN_TO_CHARACTERS_MAX
    page = return_to if is_page and return_to.isascii() and return_to.isprintable() else "#/"
    return LoginState(_create_random_text(), _create_random_text(), _create_random_text(), page)


def _create_random_text() -> str:
    return secrets.token_urlsafe(32)


class LoginStateSeal:
    """Encrypts and authenticates login states."""

    def __init__(self, secret: str | None) -> None:
        """Derive the key from a secret. Without one, the key is random: only this process can open what it sealed.

        Every visitor receives sealed states and can try secrets offline, so the secret must be random.
        """
        key = hashlib.sha256(secret.encode()).digest() if secret else secrets.token_bytes(32)
        self._fernet = Fernet(urlsafe_b64encode(key))

    def seal(self, state: LoginState) -> str:
        """Return the encrypted state, which is valid for LOGIN_SECONDS_MAX seconds."""
        return self._fernet.encrypt(msgspec.msgpack.encode(state)).decode()

    def open(self, sealed: str) -> LoginState:
        """Return the state.

        Raises:
            InvalidLoginState: The text is empty, too old, or was not sealed with this key.
        """
        try:
            return msgspec.msgpack.decode(self._fernet.decrypt(sealed.encode(), LOGIN_SECONDS_MAX), type=LoginState)
        except (InvalidToken, UnicodeEncodeError, msgspec.MsgspecError):
            raise InvalidLoginState(
                f"the login took more than {LOGIN_SECONDS_MAX // 60} minutes, or was started in another browser: "
                "log in again"
            ) from None
