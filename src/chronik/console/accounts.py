"""The account that an HTTP request is charged to."""

from __future__ import annotations

from chronik.addresses import network_of
from chronik.principals import ANONYMOUS, Principal

Account = Principal | str
"""The principal of an authenticated request; the client's network (see `chronik.addresses`) if it has no name."""


def account_of(principal: Principal, host: str) -> Account:
    return network_of(host) if principal == ANONYMOUS else principal
