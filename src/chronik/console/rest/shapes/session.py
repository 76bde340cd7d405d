"""Who is logged in."""

from __future__ import annotations

from typing import Annotated

import msgspec

from chronik.console.rest.shapes.common import Body


class Session(msgspec.Struct):
    principal: str | None
    """Such as User:alice; null without a login where one is needed."""
    logged_in: bool
    login_required: bool
    login_with: str | None
    """"password": a user's name and password. "token": the node's http_token, as a password without a name. null: no
    login is needed."""
    authorizer: bool
    node_id: int | None = None
    """This and what follows is told to whoever needs no login, or has logged in."""
    cluster_id: str | None = None
    version: str | None = None


class Login(Body):
    username: Annotated[str, msgspec.Meta(max_length=1024)]
    password: Annotated[str, msgspec.Meta(max_length=4096)]
