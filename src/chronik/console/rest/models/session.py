"""Models of login sessions."""

from __future__ import annotations

from typing import Annotated

import msgspec

from chronik.console.rest.models.common import Body


class Session(msgspec.Struct):
    """The client's login status."""

    principal: str | None
    """The principal, such as User:alice; null if a login is required and missing."""
    logged_in: bool
    login_required: bool
    login_with: str | None
    """"password": log in with a user name and a password. "token": log in with the node's http_token as the password
    and no name. null: no login is required."""
    authorizer: bool
    node_id: int | None = None
    """This and the following fields are set if the client is logged in or no login is required."""
    cluster_id: str | None = None
    version: str | None = None


class Login(Body):
    """The credentials of a login."""

    username: Annotated[str, msgspec.Meta(max_length=1024)]
    password: Annotated[str, msgspec.Meta(max_length=4096)]
