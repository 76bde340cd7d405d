"""Who may look at which page: whoever reaches a loopback address, or shows the token or a certificate. `/healthz` is
for everyone."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import Final

from chronik.console.http import BadRequest

OPEN_TO_ALL: Final = frozenset({"/healthz"})
SCHEME: Final = "bearer "


class Door:
    def __init__(self, token: str | None, *, is_open: bool) -> None:
        self._token = token.encode() if token else None
        self.is_open: Final = is_open

    def check(self, path: str, authorization: str, *, has_certificate: bool = False) -> None:
        """A certificate was checked when the connection began. Raises BadRequest; of pages that do not exist, too, so
        that nobody learns which do."""
        if self.is_open or has_certificate or path in OPEN_TO_ALL:
            return
        if self._token is None:
            why = "this node shows it on loopback addresses only, or to whoever has the token or a certificate: "
            why += "set http_token, or http_keystore and http_truststore"
            raise BadRequest(HTTPStatus.UNAUTHORIZED, why)
        shown = authorization[len(SCHEME) :].strip() if authorization.lower().startswith(SCHEME) else ""
        if not hmac.compare_digest(shown.encode("utf-8", "replace"), self._token):
            raise BadRequest(HTTPStatus.UNAUTHORIZED, "expected Authorization: Bearer, and this node's http_token")
