"""Creation of the configured authorizer. A node without one does not import its code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronik.configs.resolver import ConfigResolver

if TYPE_CHECKING:
    from chronik.security.authorizer import Authorizer


def create_node_authorizer(configs: ConfigResolver) -> Authorizer | None:
    """Return the authorizer that the broker configs define, or None."""
    if not configs.broker_value("authorizer.class.name"):
        return None
    from chronik.security.authorizer import create_authorizer

    return create_authorizer(configs.broker_value)
