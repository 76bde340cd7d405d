"""Single sign-on: the two pages that redirect a browser to an OpenID Connect provider and accept it back."""

from __future__ import annotations

import html
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

from chronik.console.connection import ClientInfo
from chronik.console.http import HttpRequest, HttpResponse
from chronik.console.rest.authentication import (
    HttpAuthenticator,
    build_session_cookie_header,
    parse_cookie,
    parse_session_token,
)
from chronik.console.rest.errors import RestError
from chronik.console.rest.node_interface import NodeInterface
from chronik.console.web.static_files import HEADERS
from chronik.ip_addresses import client_network
from chronik.request_reply import Disconnect
from chronik.security.oidc.login_state import LOGIN_SECONDS_MAX, InvalidLoginState, LoginStateSeal, create_login_state
from chronik.security.oidc.outcomes import ProviderError, SignedOnUser, SingleSignOnError
from chronik.security.oidc.provider import OidcProvider
from chronik.security.oidc.settings import CALLBACK_PATH, OidcSettings
from chronik.security.sasl.fair_pool import FairThreadPool

logger = logging.getLogger("chronik.console")

T = TypeVar("T")

LOGIN_PATH: Final = "/login/oidc"
RETURN_PARAMETER: Final = "return"
CANONICAL_PARAMETER: Final = "canonical"
"""Marks a request that was redirected to the host of the redirect URL, so that it is not redirected again."""

COOKIE: Final = "chronik_login"
"""The cookie of a login in progress. Unlike a session's, it is sent with the provider's redirect (SameSite=Lax)."""

THREADS: Final = 2
"""Logins that wait for the provider concurrently. A slow provider must not occupy the threads of other operations."""
WAITING_MAX: Final = 64

HTML: Final = "text/html; charset=utf-8"
PARAMETERS_MAX: Final = 20


class SingleSignOn:
    """The pages `/login/oidc`, which starts a login at the provider, and `/login/oidc/callback`, which completes it."""

    def __init__(self, settings: OidcSettings, node: NodeInterface, authenticator: HttpAuthenticator) -> None:
        self._settings = settings
        self._authenticator = authenticator
        self._provider = OidcProvider(settings, node.services.clock.now_ms)
        self._seal = LoginStateSeal(node.services.config.cluster_secret or settings.client_secret)
        self._is_encrypted = settings.redirect_url.startswith("https:")
        self._host = urlsplit(settings.redirect_url).netloc.lower()
        self._pool = FairThreadPool(
            ThreadPoolExecutor(THREADS, "single-sign-on"), running_max=THREADS, waiting_max=WAITING_MAX
        )

    def close(self) -> None:
        """Stop the threads that wait for the provider."""
        self._pool.close()

    def has_path(self, path: str) -> bool:
        """Return whether a path is one of the two pages."""
        return path in (LOGIN_PATH, CALLBACK_PATH)

    def build_logout_url(self, id_token: str) -> str | None:
        """Return the URL at which the provider ends the user's session; None if it has none."""
        return self._provider.build_logout_url(id_token)

    async def respond(self, request: HttpRequest, caller: ClientInfo) -> HttpResponse:
        """Respond to a request for one of the two pages."""
        if request.method != "GET":
            return _build_error_page(HTTPStatus.METHOD_NOT_ALLOWED, "this page supports GET only")
        try:
            if request.path == LOGIN_PATH:
                return await self._start(request, caller)
            return await self._complete(request, caller)
        except ProviderError as error:
            logger.warning("single sign-on failed: %s", error)
            status, message = HTTPStatus.BAD_GATEWAY, "the provider does not respond as expected; see the node's log"
        except (SingleSignOnError, InvalidLoginState) as error:
            logger.info("login rejected: method=single-sign-on reason=%r", str(error))
            status, message = HTTPStatus.UNAUTHORIZED, str(error)
        except RestError as error:
            status, message = error.status, str(error)
        except Disconnect:
            status, message = HTTPStatus.TOO_MANY_REQUESTS, "too many logins are queued: try again later"
        return _build_error_page(status, message, _build_login_cookie_header("", is_encrypted=self._is_encrypted))

    async def _start(self, request: HttpRequest, caller: ClientInfo) -> HttpResponse:
        """Redirect the browser to the provider, with the state of the login in a cookie.

        The browser must start at the host to which the provider redirects it, or the cookie would be missing there.
        """
        parameters = _parse_parameters(request.query)
        return_to = parameters.get(RETURN_PARAMETER, "")
        if request.host.lower() != self._host and CANONICAL_PARAMETER not in parameters:
            query = urlencode({RETURN_PARAMETER: return_to, CANONICAL_PARAMETER: 1})
            return _build_redirect(f"{self._settings.console_url.rstrip('/')}{LOGIN_PATH}?{query}")
        state = create_login_state(return_to)
        url = await self._run_in_thread(caller, lambda: self._provider.build_login_url(state))
        return _build_redirect(url, _build_login_cookie_header(self._seal.seal(state), is_encrypted=self._is_encrypted))

    async def _complete(self, request: HttpRequest, caller: ClientInfo) -> HttpResponse:
        """Verify the provider's response and create a session."""
        parameters = _parse_parameters(request.query)
        cookies = request.header(b"cookie")
        state = self._seal.open(parse_cookie(cookies, COOKIE))
        if not state.is_state(parameters.get("state", "")):
            raise InvalidLoginState("the response belongs to another login: log in again")
        if "error" in parameters:
            raise SingleSignOnError(f"the provider rejected the login: {_shorten_error(parameters['error'])}")
        code = parameters.get("code", "")
        if not code:
            raise SingleSignOnError("the provider's response contains no code")

        async def verify() -> SignedOnUser:
            issuer = parameters.get("iss")
            return await self._run_in_thread(caller, lambda: self._provider.log_in(state, code, issuer))

        user = await self._authenticator.log_in_with_provider(caller, verify)
        sessions = self._authenticator.sessions
        sessions.remove(parse_session_token(cookies))
        token = sessions.create(user.principal, user.id_token)
        is_encrypted = self._is_encrypted or caller.is_encrypted
        return _build_redirect(
            f"/{state.return_to}",
            build_session_cookie_header(token, is_encrypted=is_encrypted),
            _build_login_cookie_header("", is_encrypted=self._is_encrypted),
        )

    async def _run_in_thread(self, caller: ClientInfo, function: Callable[[], T]) -> T:
        return await self._pool.run(client_network(caller.host), function)


def _parse_parameters(query: str) -> dict[str, str]:
    """Return the query parameters. Raise SingleSignOnError if one is repeated, which no provider does."""
    try:
        found = parse_qs(query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise SingleSignOnError("the response has too many parameters") from None
    if any(len(values) > 1 for values in found.values()):
        raise SingleSignOnError("the response has a repeated parameter")
    return {name: values[0] for name, values in found.items()}


def _shorten_error(code: str) -> str:
    """Return an OAuth error code such as access_denied. Other text, which any site can make up, is not shown."""
    return code if code.isascii() and code.replace("_", "").isalnum() and len(code) <= 64 else "unknown error"


def _build_login_cookie_header(sealed: str, *, is_encrypted: bool) -> tuple[str, str]:
    """Return a Set-Cookie header for the state of a login. An empty state deletes the cookie."""
    secure = "; Secure" if is_encrypted else ""
    age = LOGIN_SECONDS_MAX if sealed else 0
    return "Set-Cookie", f"{COOKIE}={sealed}; Path={LOGIN_PATH}; HttpOnly; SameSite=Lax; Max-Age={age}{secure}"


def _build_redirect(url: str, *headers: tuple[str, str]) -> HttpResponse:
    return HttpResponse(HTTPStatus.SEE_OTHER, HTML, headers=(*HEADERS[1:], ("Location", url), *headers))


def _build_error_page(status: HTTPStatus, message: str, *headers: tuple[str, str]) -> HttpResponse:
    styles = "".join(f'<link rel="stylesheet" href="/ui/css/{name}.css">' for name in ("base", "parts", "pages"))
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Login failed · Chronik</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><script src="/ui/theme.js"></script>{styles}</head>'
        '<body><main class="login"><div class="card login-card"><h1>Login failed</h1>'
        f"<p>{html.escape(message[:1].upper() + message[1:])}.</p>"
        '<a class="button button-primary" href="/">Back to the console</a></div></main></body></html>\n'
    )
    return HttpResponse(status, HTML, page.encode(), headers=(*HEADERS, *headers))
