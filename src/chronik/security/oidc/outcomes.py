"""Outcomes of a login at an OpenID Connect provider."""

from __future__ import annotations

import msgspec

from chronik.errors import ChronikError
from chronik.principals import Principal


class SingleSignOnError(ChronikError):
    """The provider's response does not authenticate a user."""

    def __init__(self, message: str, user: str = "") -> None:
        """Create an error. `user` is the name of the user, if the provider has authenticated one."""
        super().__init__(message)
        self.user = user


class ProviderError(ChronikError):
    """The provider cannot be reached, or its configuration does not match that of the node."""


class SignedOnUser(msgspec.Struct, frozen=True):
    """A user whom the provider has authenticated."""

    principal: Principal
    id_token: str
    """Names the user's session when the console logs the user out at the provider; empty if it is too large."""

    def __repr__(self) -> str:
        return f"SignedOnUser({self.principal})"
