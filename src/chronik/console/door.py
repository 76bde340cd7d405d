"""Access control for the status pages: loopback listeners are open, other listeners require the token or a client
certificate. `/healthz` is public."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import Final

from chronik.console.http import BadRequest

OPEN_TO_ALL: Final = frozenset({"/healthz"})
SCHEME: Final = "bearer "


class Door:
    """The access rules of the status pages."""

    def __init__(self, token: str | None, *, is_open: bool) -> None:
        self._token = token.encode() if token else None
        self.is_open: Final = is_open

    def check(self, path: str, authorization: str, *, has_certificate: bool = False) -> None:
        """Raise HttpError unless the client may see the page.

        Pages that do not exist raise the same error, so that a client cannot find out which pages exist. The client
        certificate was verified during the TLS handshake.
        """
        if self.is_open or has_certificate or path in OPEN_TO_ALL:
            return
        if self._token is None:
            reason = "status pages are available on loopback addresses, or with a token or a client certificate: "
            reason += "set http_token, or http_keystore and http_truststore"
            raise BadRequest(HTTPStatus.UNAUTHORIZED, reason)
        given_token = authorization[len(SCHEME) :].strip() if authorization.lower().startswith(SCHEME) else ""
        if not hmac.compare_digest(given_token.encode("utf-8", "replace"), self._token):
            raise BadRequest(HTTPStatus.UNAUTHORIZED, "send 'Authorization: Bearer' with this node's http_token")
