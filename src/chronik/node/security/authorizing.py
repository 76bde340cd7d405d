"""The authorizer that a node's configs ask for, if any. A node without one starts without its code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronik.configs.resolver import ConfigResolver

if TYPE_CHECKING:
    from chronik.security.authorizer import Authorizer


def authorizer_for(configs: ConfigResolver) -> Authorizer | None:
    if not configs.broker("authorizer.class.name"):
        return None
    from chronik.security.authorizer import authorizer_of

    return authorizer_of(configs.broker)
