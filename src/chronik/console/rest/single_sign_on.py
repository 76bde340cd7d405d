"""Single sign-on: the two pages that redirect a browser to an OpenID Connect provider and accept it back."""

from __future__ import annotations

import hashlib
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
    HOST_PREFIX,
    HttpAuthenticator,
    build_session_cookie_header,
    iter_cookies,
    parse_cookie,
    parse_session_token,
)
from chronik.console.rest.node_interface import NodeInterface
from chronik.console.web.static_files import HEADERS
from chronik.ip_addresses import client_network
from chronik.request_reply import Disconnect
from chronik.security.oidc.login_state import LOGIN_SECONDS_MAX, InvalidLoginState, LoginStateSeal, create_login_state
from chronik.security.oidc.outcomes import ProviderError, SingleSignOnError
from chronik.security.oidc.provider import OidcProvider, shorten_error_code
from chronik.security.oidc.settings import CALLBACK_PATH, LOGIN_PATH, OidcSettings
from chronik.security.sasl.fair_pool import FairThreadPool

logger = logging.getLogger("chronik.console")

T = TypeVar("T")

RETURN_PARAMETER: Final = "return"
CANONICAL_PARAMETER: Final = "canonical"
"""Marks a request that was redirected to the host of the redirect URL, so that it is not redirected again."""

COOKIE_PREFIX: Final = "chronik_login_"
"""The start of the names of cookies of logins in progress. Each login has its own, since a browser may start several in
its tabs. Unlike a session's, these cookies are sent with the provider's redirect (SameSite=Lax)."""
LOGINS_MAX: Final = 3
"""Logins in progress that a browser keeps."""

UNKNOWN_USER: Final = "(single sign-on)"
"""The user name of rejected logins in the audit log if the provider has not authenticated a user."""

THREADS: Final = 4
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
        self._seal = LoginStateSeal(settings.cookie_secret)
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
            return _build_error_page(HTTPStatus.METHOD_NOT_ALLOWED, "this page supports GET only", ("Allow", "GET"))
        try:
            if request.path == LOGIN_PATH:
                return await self._start(request, caller)
            return await self._complete(request, caller)
        except ProviderError as error:
            logger.warning("single sign-on failed: %s", error)
            status, message = HTTPStatus.BAD_GATEWAY, "the provider does not respond as expected; see the node's log"
        except (SingleSignOnError, InvalidLoginState) as error:
            logger.info("login rejected: method=single-sign-on reason=%r", str(error))
            self._authenticator.log_failed_login(caller, getattr(error, "user", "") or UNKNOWN_USER)
            status, message = HTTPStatus.UNAUTHORIZED, str(error)
        except Disconnect:
            status, message = HTTPStatus.TOO_MANY_REQUESTS, "too many logins are queued: try again later"
        return _build_error_page(status, message)

    async def _start(self, request: HttpRequest, caller: ClientInfo) -> HttpResponse:
        """Redirect the browser to the provider, with the state of the login in a cookie.

        The browser must start at the host to which the provider redirects it, or the cookie would be missing there.
        """
        parameters = _parse_parameters(request.query)
        return_to = parameters.get(RETURN_PARAMETER, "")
        is_elsewhere = request.host.lower() != self._host or (self._is_encrypted and not caller.is_encrypted)
        if is_elsewhere and CANONICAL_PARAMETER not in parameters:
            query = urlencode({RETURN_PARAMETER: return_to, CANONICAL_PARAMETER: 1})
            return _build_redirect(f"{self._settings.console_url.rstrip('/')}{LOGIN_PATH}?{query}")
        if not self._provider.is_current:
            await self._run_in_thread(caller, self._provider.load)
        state = create_login_state(return_to)
        cookies = [self._build_cookie_header(self._cookie_name(state.state), self._seal.seal(state))]
        others = [name for name, _ in iter_cookies(request.header(b"cookie")) if COOKIE_PREFIX in name]
        if len(others) >= LOGINS_MAX:
            cookies += [self._build_cookie_header(name, "") for name in others if name.isascii()]
        return _build_redirect(self._provider.build_login_url(state), *cookies)

    async def _complete(self, request: HttpRequest, caller: ClientInfo) -> HttpResponse:
        """Verify the provider's response and create a session."""
        parameters = _parse_parameters(request.query)
        cookies = request.header(b"cookie")
        cookie_name = self._cookie_name(parameters.get("state", ""))
        state = self._seal.open(parse_cookie(cookies, cookie_name))
        if not state.is_state(parameters.get("state", "")):
            raise InvalidLoginState("the response belongs to another login: log in again")
        if "error" in parameters:
            raise SingleSignOnError(f"the provider rejected the login: {shorten_error_code(parameters['error'])}")
        code, issuer = parameters.get("code", ""), parameters.get("iss")
        if not code:
            raise SingleSignOnError("the provider's response contains no code: log in again")
        user = await self._run_in_thread(caller, lambda: self._provider.log_in(state, code, issuer))
        sessions = self._authenticator.sessions
        sessions.remove(parse_session_token(cookies, is_encrypted=caller.is_encrypted))
        token = sessions.create(user.principal, user.id_token)
        return _build_redirect(
            f"/{state.return_to}",
            build_session_cookie_header(token, is_encrypted=self._is_encrypted or caller.is_encrypted),
            self._build_cookie_header(cookie_name, ""),
        )

    def _cookie_name(self, state: str) -> str:
        """Return the name of the cookie of a login: a short hash, since the browser chooses `state`."""
        digest = hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()[:16]
        return f"{HOST_PREFIX if self._is_encrypted else ''}{COOKIE_PREFIX}{digest}"

    def _build_cookie_header(self, name: str, sealed: str) -> tuple[str, str]:
        """Return a Set-Cookie header for the state of a login. An empty state deletes the cookie."""
        scope = "Path=/; Secure" if self._is_encrypted else f"Path={LOGIN_PATH}"
        age = LOGIN_SECONDS_MAX if sealed else 0
        return "Set-Cookie", f"{name}={sealed}; {scope}; HttpOnly; SameSite=Lax; Max-Age={age}"

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


def _build_redirect(url: str, *headers: tuple[str, str]) -> HttpResponse:
    protection = ("Referrer-Policy", "no-referrer")
    return HttpResponse(HTTPStatus.SEE_OTHER, HTML, headers=(protection, ("Location", url), *headers))


def _build_error_page(status: HTTPStatus, message: str, *headers: tuple[str, str]) -> HttpResponse:
    styles = "".join(f'<link rel="stylesheet" href="/ui/css/{name}.css">' for name in ("base", "parts", "pages"))
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Login failed · Chronik</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><script src="/ui/theme.js"></script>{styles}</head>'
        '<body><main class="login"><div class="card login-card"><h1>Login failed</h1>'
        f"<p>{html.escape(message[:1].upper() + message[1:])}.</p>"
        f'<a class="button button-primary" href="{LOGIN_PATH}">Log in again</a><a href="/">Back to the console</a>'
        "</div></main></body></html>\n"
    )
    protection = dict[str, str](HEADERS) | {"Cache-Control": "no-store"}
    return HttpResponse(status, HTML, page.encode(), headers=(*protection.items(), *headers))
