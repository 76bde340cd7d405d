"""Access control for the status pages: loopback listeners are open, other listeners require the token or a client
certificate. `/healthz` is public.
"""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import Final

from chronik.console.http import HttpError

PUBLIC_PATHS: Final = frozenset({"/healthz"})
BEARER_PREFIX: Final = "bearer "


class PageAuthorizer:
    """The access rules of the status pages."""

    def __init__(self, token: str | None, *, allows_anonymous: bool) -> None:
        self._token = token.encode() if token else None
        self.allows_anonymous: Final = allows_anonymous

    def check_access(self, path: str, authorization: str, *, has_certificate: bool = False) -> None:
        """Raise HttpError unless the client may see the page.

        Pages that do not exist raise the same error, so that a client cannot find out which pages exist. The client
        certificate was verified during the TLS handshake.
        """
        if self.allows_anonymous or has_certificate or path in PUBLIC_PATHS:
            return
        if self._token is None:
            reason = "status pages are available on loopback addresses, or with a token or a client certificate: "
            reason += "set http_token, or http_keystore and http_truststore"
            raise HttpError(HTTPStatus.UNAUTHORIZED, reason)
        given_token = (
            authorization[len(BEARER_PREFIX) :].strip() if authorization.lower().startswith(BEARER_PREFIX) else ""
        )
        if not hmac.compare_digest(given_token.encode("utf-8", "replace"), self._token):
            raise HttpError(HTTPStatus.UNAUTHORIZED, "send 'Authorization: Bearer' with this node's http_token")
