"""Creation of the configured authorizer. A node without one does not import its code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronik.configs.resolver import ConfigResolver

if TYPE_CHECKING:
    from chronik.security.authorizer import Authorizer


def authorizer_for(configs: ConfigResolver) -> Authorizer | None:
    """Return the authorizer that the broker configs define, or None."""
    if not configs.broker("authorizer.class.name"):
        return None
    from chronik.security.authorizer import authorizer_of

    return authorizer_of(configs.broker)
