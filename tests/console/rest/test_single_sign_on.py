"""Single sign-on against a provider that can return any response: logins, rejected logins and logouts over HTTP."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest

from chronik.config import load_config
from chronik.errors import ConfigError
from chronik.security.oidc.settings import CALLBACK_PATH, read_oidc_settings
from chronik.testing import Broker, BrokerFailed
from chronik.testing.ports import HOST, ReservedPorts
from tests.chaos.clients import wait_for
from tests.console.rest.api_client import ApiClient
from tests.security.oidc.identity_provider import CLIENT_ID, CLIENT_SECRET, USER, IdentityProvider

pytestmark = pytest.mark.slow

START = "/login/oidc"
COOKIE_SECRET = "0123456789abcdef" * 2
SECONDS_MAX = 60


class Page(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: str

    @property
    def location(self) -> str:
        (location,) = [value for name, value in self.headers if name == "Location"]
        return location

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that the page sets, with their attributes."""
        return dict(value.split("=", 1) for name, value in self.headers if name == "Set-Cookie")


class Console:
    """A node with single sign-on."""

    def __init__(self, provider: IdentityProvider, **config: Any) -> None:
        self._reserved = ReservedPorts(1)
        self.address = f"{HOST}:{self._reserved.ports[0]}"
        settings: dict[str, Any] = {
            "http": self.address,
            "oidc_issuer": provider.issuer,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": CLIENT_SECRET,
            "oidc_redirect_url": f"http://{self.address}{CALLBACK_PATH}",
            "oidc_cookie_secret": COOKIE_SECRET,
            "oidc_principal_claim": "email",
        }
        self.broker = Broker(**(settings | config))
        self.broker.start()

    def close(self) -> None:
        self.broker.close()
        self._reserved.release()

    def get(self, path: str, cookies: dict[str, str] | None = None, host: str = "", method: str = "GET") -> Page:
        connection = http.client.HTTPConnection(self.address, timeout=SECONDS_MAX)
        try:
            values = {name: value.partition(";")[0] for name, value in (cookies or {}).items()}
            headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in values.items())} if values else {}
            # The provider's page has redirected the browser: the request comes from another site.
            connection.request(
                method, path, headers={"Host": host or self.address, "Sec-Fetch-Site": "cross-site"} | headers
            )
            response = connection.getresponse()
            return Page(response.status, response.getheaders(), response.read().decode())
        finally:
            connection.close()

    def start_login(self, provider: IdentityProvider, query: str = "") -> tuple[str, dict[str, str]]:
        """Start a login, and return the path to which the provider redirects the browser, and its cookies."""
        page = self.get(f"{START}{query}")
        assert page.status == 303, page
        callback = urlsplit(provider.authorize(page.location))
        assert callback.netloc == self.address
        return f"{callback.path}?{callback.query}", page.cookies

    def log_in(self, provider: IdentityProvider) -> Page:
        return self.get(*self.start_login(provider))

    def principal(self, cookies: dict[str, str]) -> str | None:
        client = ApiClient(self.address)
        client.cookie = f"chronik_session={cookies.get('chronik_session', '').partition(';')[0]}"
        found: str | None = client.get("/session").json["principal"]
        return found


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[IdentityProvider, Console]]:
    with IdentityProvider() as provider:
        rules = "RULE:^(.*)@example.com$/$1/L,RULE:^(ANONYMOUS)$/$1/"
        console = Console(provider, oidc_principal_rules=rules)
        yield provider, console
        console.close()


@pytest.fixture
def provider(shared: tuple[IdentityProvider, Console]) -> Iterator[IdentityProvider]:
    yield shared[0]
    shared[0].reset()


@pytest.fixture
def console(shared: tuple[IdentityProvider, Console]) -> Console:
    return shared[1]


def test_login_creates_a_session_and_shows_the_page(provider: IdentityProvider, console: Console) -> None:
    callback, cookies = console.start_login(provider, "?" + urlencode({"return": "#/topics/orders?tab=messages"}))
    [(name, value)] = cookies.items()
    assert name.startswith("chronik_login_")
    assert value.endswith("; Path=/login/oidc; HttpOnly; SameSite=Lax; Max-Age=600")
    page = console.get(callback, cookies)
    assert (page.status, page.location) == (303, "/#/topics/orders?tab=messages")
    assert page.cookies["chronik_session"].endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert page.cookies[name].endswith("; Max-Age=0")
    assert ("Cache-Control", "no-store") in page.headers
    assert console.principal(page.cookies) == "User:alice"
    assert ApiClient(console.address).get("/topics").status == 401, "a login is required"


def test_start_redirects_to_the_host_of_the_redirect_url(console: Console) -> None:
    page = console.get(f"{START}?return=%23%2Ftopics", host="localhost:1")
    assert page.location == f"http://{console.address}{START}?return=%23%2Ftopics&canonical=1"
    behind_proxy = console.get(f"{START}?return=%23%2Ftopics&canonical=1", host="localhost:1")
    assert "/authorize?" in behind_proxy.location


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/logout", "#/\r\nX: y", "#/" + "a" * 2000, "#/ä"]
)
def test_other_sites_are_not_shown_after_the_login(provider: IdentityProvider, console: Console, target: str) -> None:
    callback, cookies = console.start_login(provider, "?" + urlencode({"return": target}))
    assert console.get(callback, cookies).location == "/#/"


CLAIMS = {
    "other nonce": {"nonce": "other"},
    "no nonce": {"nonce": None},
    "nonce of another type": {"nonce": ["x"]},
    "other audience": {"aud": "other"},
    "no audience": {"aud": None},
    "several audiences without azp": {"aud": [CLIENT_ID, "other"]},
    "issued to another client": {"azp": "other"},
    "other issuer": {"iss": "https://other.example"},
    "expired": {"exp": 1_000_000_000},
    "not valid yet": {"nbf": 4_000_000_000},
    "no expiry": {"exp": None},
    "no e-mail address": {"email": None},
    "e-mail address of another type": {"email": {"a": 1}},
    "unverified e-mail address": {"email_verified": False},
    "e-mail address of unknown verification": {"email_verified": None},
    "no rule matches": {"email": "alice@other.example"},
    "anonymous": {"email": "ANONYMOUS"},
    "control character": {"email": "a\nb@example.com"},
    "long name": {"email": "a" * 1000 + "@example.com"},
}


@pytest.mark.parametrize("claims", CLAIMS.values(), ids=CLAIMS)
def test_invalid_claims_are_rejected(provider: IdentityProvider, console: Console, claims: dict[str, Any]) -> None:
    provider.claims = claims
    assert_rejected(console.log_in(provider))


@pytest.mark.parametrize(
    "sign",
    [IdentityProvider.sign_with_other_key, IdentityProvider.sign_with_client_secret, IdentityProvider.leave_unsigned],
)
def test_invalid_signatures_are_rejected(
    provider: IdentityProvider, console: Console, sign: Callable[[IdentityProvider, dict[str, Any]], str]
) -> None:
    provider.sign = lambda claims: sign(provider, claims)
    assert_rejected(console.log_in(provider))


def test_token_for_several_audiences_names_its_client(provider: IdentityProvider, console: Console) -> None:
    provider.claims = {"aud": [CLIENT_ID, "other"], "azp": CLIENT_ID}
    assert console.principal(console.log_in(provider).cookies) == "User:alice"


PARAMETERS = {
    "other state": {"state": "other"},
    "no state": {"state": None},
    "no code": {"code": None},
    "unknown code": {"code": "unknown"},
    "other provider": {"iss": "https://other.example"},
    "no issuer": {"iss": None},
    "error": {"error": "access_denied"},
    "error with markup": {"error": "<script>alert(1)</script>"},
    "repeated code": {"code": ["a", "b"]},
    "many parameters": {f"p{number}": "x" for number in range(100)},
}


@pytest.mark.parametrize("changes", PARAMETERS.values(), ids=PARAMETERS)
def test_invalid_redirects_are_rejected(provider: IdentityProvider, console: Console, changes: dict[str, Any]) -> None:
    callback, cookies = console.start_login(provider)
    query = {
        name: value
        for name, value in (dict(parse_qsl(urlsplit(callback).query)) | changes).items()
        if value is not None
    }
    page = console.get(f"{CALLBACK_PATH}?{urlencode(query, doseq=True)}", cookies)
    assert_rejected(page)
    assert "alert(1)" not in page.body


def test_login_without_the_cookie_of_its_start_is_rejected(provider: IdentityProvider, console: Console) -> None:
    callback, cookies = console.start_login(provider)
    assert_rejected(console.get(callback))
    assert_rejected(console.get(callback, dict.fromkeys(cookies, "x" * 300)))
    (other,) = console.start_login(provider)[1].values()
    assert_rejected(console.get(callback, dict.fromkeys(cookies, other)))
    assert console.get(callback, cookies).status == 303, "the rejected requests have not redeemed the code"
    assert_rejected(console.get(callback, cookies))  # a code is valid once


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
@pytest.mark.parametrize("path", [START, CALLBACK_PATH])
def test_pages_support_get_only(console: Console, path: str, method: str) -> None:
    assert console.get(path, method=method).status == 405


def redirect(handler: BaseHTTPRequestHandler) -> bool:
    handler.send_response(307)
    handler.send_header("Location", f"http://{HOST}:1/token")
    handler.end_headers()
    return True


def send_error(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> bool:
    handler.send_response(status)
    handler.end_headers()
    handler.wfile.write(body)
    return True


def send_bytes(handler: BaseHTTPRequestHandler, body: bytes) -> bool:
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):  # the node has closed the connection
        handler.wfile.write(body)
    return True


RESPONSES: dict[str, tuple[Callable[[BaseHTTPRequestHandler], bool], int]] = {
    "redirect": (redirect, 502),
    "wrong client secret": (lambda handler: send_error(handler, 401, b'{"error": "invalid_client"}'), 502),
    "overloaded": (lambda handler: send_error(handler, 503, b""), 502),
    "not JSON": (lambda handler: send_bytes(handler, b"<html>"), 502),
    "no ID token": (lambda handler: send_bytes(handler, b'{"access_token": "x"}'), 502),
    "not a token": (lambda handler: send_bytes(handler, b'{"id_token": "..."}'), 401),
    "endless": (lambda handler: send_bytes(handler, b"[" * 2_000_000), 502),
    "no response": (lambda handler: handler.connection.close() is None, 502),
}


@pytest.mark.parametrize(("respond", "status"), RESPONSES.values(), ids=RESPONSES)
def test_invalid_responses_of_the_provider_are_rejected(
    provider: IdentityProvider, console: Console, respond: Callable[[BaseHTTPRequestHandler], bool], status: int
) -> None:
    provider.respond = respond
    assert_rejected(console.log_in(provider), status)


def test_slow_provider_does_not_delay_other_requests(provider: IdentityProvider, console: Console) -> None:
    released, received = threading.Event(), threading.Semaphore(0)

    def respond_slowly(handler: BaseHTTPRequestHandler) -> bool:
        received.release()
        released.wait(SECONDS_MAX)
        return False

    provider.respond = respond_slowly
    callback, cookies = console.start_login(provider)
    waiting = threading.Thread(target=console.get, args=(callback, cookies))
    waiting.start()
    try:
        assert received.acquire(timeout=SECONDS_MAX)
        assert ApiClient(console.address).get("/session").status == 200
        assert not released.is_set()
    finally:
        released.set()
        waiting.join()


def test_logins_in_several_tabs_do_not_affect_each_other(provider: IdentityProvider, console: Console) -> None:
    first, cookies = console.start_login(provider)
    second, others = console.start_login(provider)
    both = cookies | others
    assert len(both) == 2
    assert_rejected(console.get(first + "x", both))
    for callback in (second, first):
        page = console.get(callback, both)
        assert page.status == 303
        both = {name: value for name, value in both.items() if "Max-Age=0" not in page.cookies.get(name, "")}
    assert both == {}


def test_browser_keeps_few_logins_in_progress(provider: IdentityProvider, console: Console) -> None:
    cookies: dict[str, str] = {}
    for _ in range(8):
        page = console.get(START, cookies)
        cookies |= page.cookies
        cookies = {name: value for name, value in cookies.items() if "Max-Age=0" not in value}
        assert len(cookies) <= 3


def test_logout_names_the_page_that_ends_the_session_at_the_provider(
    provider: IdentityProvider, console: Console
) -> None:
    page = console.log_in(provider)
    client = ApiClient(console.address)
    client.cookie = f"chronik_session={page.cookies['chronik_session'].partition(';')[0]}"
    url = urlsplit(client.post("/logout").json["provider_url"])
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert f"{url.scheme}://{url.netloc}{url.path}" == f"{provider.issuer}/logout"
    assert query["post_logout_redirect_uri"] == f"http://{console.address}/"
    assert query["client_id"] == CLIENT_ID
    assert len(query["id_token_hint"].split(".")) == 3
    assert console.principal(page.cookies) is None


def test_any_node_of_a_cluster_completes_a_login(provider: IdentityProvider, console: Console) -> None:
    # All nodes of a cluster have the same redirect URL, for example that of a load balancer, and the same secret.
    other = Console(provider, oidc_redirect_url=f"http://{console.address}{CALLBACK_PATH}")
    try:
        page = other.get(*console.start_login(provider))
        assert other.principal(page.cookies) == f"User:{USER}"
    finally:
        other.close()


def test_public_client_and_credentials_in_the_form_are_supported() -> None:
    with IdentityProvider(client_secret=None) as provider:
        console = Console(provider, oidc_client_secret=None)
        try:
            assert console.principal(console.log_in(provider).cookies) == f"User:{USER}"
        finally:
            console.close()
    with IdentityProvider() as provider:
        provider.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        console = Console(provider, oidc_principal_claim="sub")
        try:
            assert console.principal(console.log_in(provider).cookies) == "User:248289761001"
        finally:
            console.close()


def test_provider_that_is_down_or_misconfigured_is_reported(provider: IdentityProvider) -> None:
    with IdentityProvider() as own:
        own.metadata = {"issuer": "https://other.example"}
        console = Console(own)
        try:
            page = console.get(START)
            assert page.status == 502
            assert "set oidc_issuer to this value" in console.broker.log
            own.metadata = {"token_endpoint": "http://192.0.2.1/token"}
            # For some seconds, logins fail without another request to the provider.
            assert wait_for(
                lambda: console.get(START).status == 502 and "does not use https" in console.broker.log, SECONDS_MAX
            )
            own.reset()
            assert wait_for(lambda: console.get(START).status == 303, SECONDS_MAX), "no restart is needed"
        finally:
            console.close()


def test_rejected_logins_are_in_the_audit_log(provider: IdentityProvider, console: Console) -> None:
    assert_rejected(console.get(f"{CALLBACK_PATH}?code=x"))
    assert '"event": "login refused", "principal": "User:(single sign-on)"' in console.broker.log
    provider.claims = {"email": "eve@other.example"}
    assert_rejected(console.log_in(provider))
    assert '"event": "login refused", "principal": "User:eve@other.example"' in console.broker.log


COMPLETE = {
    "oidc_issuer": "https://login.example",
    "oidc_client_id": "console",
    "oidc_redirect_url": f"https://console.example{CALLBACK_PATH}",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"oidc_client_id": None}, "oidc_client_id: missing; single sign-on requires"),
        ({"oidc_issuer": None}, "oidc_issuer: missing"),
        ({"oidc_issuer": "http://login.example"}, "expected a URL that starts with https://"),
        ({"oidc_redirect_url": "https://console.example/"}, f"the host of the console and {CALLBACK_PATH}"),
        ({"oidc_redirect_url": f"http://console.example{CALLBACK_PATH}"}, "expected https://"),
        ({"oidc_redirect_url": f"https://käse.example{CALLBACK_PATH}"}, "expected https://"),
        ({"oidc_cookie_secret": "too short"}, "oidc_cookie_secret: expected at least 32 random characters"),
        ({"oidc_scopes": "profile"}, "expected 'openid' among the scopes"),
        ({"oidc_principal_rules": "RULE:("}, "oidc_principal_rules = 'RULE:(': expected DEFAULT or RULE"),
    ],
)
def test_incomplete_settings_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_oidc_settings(load_config(None, {}, **(COMPLETE | changes)))


def test_broker_with_incomplete_settings_does_not_start() -> None:
    with pytest.raises(BrokerFailed, match="oidc_client_id: missing"):
        Broker(http=f"{HOST}:0", oidc_issuer="https://login.example").start()


def assert_rejected(page: Page, status: int = 401) -> None:
    assert page.status == status, page
    assert "chronik_session" not in page.cookies
    assert "Login failed" in page.body


def test_session_names_the_page_that_starts_a_login(console: Console) -> None:
    session = ApiClient(console.address).get("/session").json
    assert session["single_sign_on"] == START
    assert session["login_required"] is True
