"""Slow JWKS downloads: clients that need the keys wait without blocking threads, and not forever."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.error import URLError

import pytest

from chronik.clock import ManualClock
from chronik.limits import CONCURRENT_AUTHENTICATIONS_MAX
from chronik.request_reply import ConnectedClient
from chronik.security.sasl import authenticator as authenticating
from chronik.security.sasl import jwks
from chronik.security.sasl.authenticator import Authenticator
from chronik.security.sasl.jwks import JwksCache, create_key_reader
from chronik.security.sasl.oauthbearer import INVALID_TOKEN_RESPONSE, OAuthBearerClient
from chronik.security.sasl.outcomes import OAUTHBEARER, ValidToken
from chronik.security.sasl.tokens import JwtValidator, TokenSettings, TokenValidator
from chronik.tls.contexts import ReloadableTlsContext
from tests.security.sasl.test_tokens import NOW, key, published, token
from tests.tls.certificates import certificate_authority, replace_file, server_settings

DEADLINE_SECONDS = 20.0
MORE_THAN_THREADS = CONCURRENT_AUTHENTICATIONS_MAX + 3


class SlowKeySource:
    """A key source that returns its first keys immediately, and further keys when `go` is set."""

    def __init__(self, *first: Any, then: Any) -> None:
        self.answers = [published(*first)] if first else []
        self.then = published(then)
        self.is_asked = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> bytes:
        if self.answers:
            return self.answers.pop()
        self.is_asked.set()
        assert self.go.wait(DEADLINE_SECONDS)
        return self.then


def validator(source: Callable[[], bytes], clock: ManualClock) -> JwtValidator:
    keys = JwksCache(source, 3600, 0.1, clock.monotonic)
    return JwtValidator(TokenSettings(), keys, ManualClock(NOW * 1000).now_ms)


def authenticator(believes: TokenValidator) -> Authenticator:
    return Authenticator(cast(Any, None), ManualClock(NOW * 1000), lambda: 0, believes)


async def authenticate(by: Authenticator, host: str, shown: str) -> bytes:
    """Return the response to a client's token: empty if it is accepted."""
    session = by.create_session(lambda: (OAUTHBEARER,), lambda _: 0)
    session.handshake(OAUTHBEARER, 1, 0.0)
    answer = await by.respond(session, ConnectedClient(host, 1, 1), OAuthBearerClient(shown).initial_message())
    return answer.data


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 2 * DEADLINE_SECONDS))


def test_tokens_with_known_key_do_not_wait_for_key_reload() -> None:
    async def scenario() -> None:
        clock, source = ManualClock(), SlowKeySource(key(), then=key("two"))
        clock.advance(100)
        by = authenticator(validator(source, clock))
        assert await authenticate(by, "known", token()) == b""
        clock.advance(jwks.UNKNOWN_KEY_SECONDS)
        new = token(signed_by=key("two"), kid="two")
        waiting = [asyncio.ensure_future(authenticate(by, f"new {n}", new)) for n in range(MORE_THAN_THREADS)]
        assert await asyncio.to_thread(source.is_asked.wait, DEADLINE_SECONDS)
        for _ in range(5):
            assert await asyncio.wait_for(authenticate(by, "known", token()), DEADLINE_SECONDS / 2) == b""
        assert not any(each.done() for each in waiting)
        source.go.set()
        assert await asyncio.gather(*waiting) == [b""] * MORE_THAN_THREADS, "the new key was loaded"
        by.close()

    run(scenario)


def test_hanging_key_source_does_not_block_other_tokens() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        clock.advance(100)
        source = SlowKeySource(then=key())
        hanging, fine = validator(source, clock), validator(lambda: published(key("fine")), clock)
        tokens = {token(): hanging, token(signed_by=key("fine"), kid="fine"): fine}

        def either(token: str) -> ValidToken:
            return tokens[token](token)

        by = authenticator(either)
        stuck, other = tokens
        waiting = [asyncio.ensure_future(authenticate(by, f"stuck {n}", stuck)) for n in range(MORE_THAN_THREADS)]
        assert await asyncio.to_thread(source.is_asked.wait, DEADLINE_SECONDS)
        assert await asyncio.wait_for(authenticate(by, "other", other), DEADLINE_SECONDS / 2) == b""
        assert not any(each.done() for each in waiting)
        source.go.set()
        assert await asyncio.gather(*waiting) == [b""] * MORE_THAN_THREADS
        by.close()

    run(scenario)


def test_waiting_for_keys_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticating, "READ_SECONDS_MAX", 0.05)

    async def scenario() -> None:
        clock = ManualClock()
        clock.advance(100)
        source = SlowKeySource(then=key())
        by = authenticator(validator(source, clock))
        assert await authenticate(by, "a", token()) == INVALID_TOKEN_RESPONSE.encode()
        source.go.set()
        by.close()

    run(scenario)


class Trickling(BaseHTTPRequestHandler):
    """An HTTP handler that sends one byte at a time, each before the socket timeout."""

    def do_GET(self) -> None:
        whole = b"HTTP/1.0 200 OK\r\nX: " + b"x" * 200 + b"\r\n\r\n{}"
        sent_first = whole.index(b"{") if self.path == "/body" else 0
        rest = whole[sent_first:].ljust(len(whole), b" ")
        try:
            self.wfile.write(whole[:sent_first])
            for byte in rest:
                self.wfile.write(bytes([byte]))
                self.server.pause.wait(0.02)  # type: ignore[attr-defined]
        except OSError:
            self.server.left.set()  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def trickling(tls: ssl.SSLContext | None = None) -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Trickling) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.pause, server.left = threading.Event(), threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.pause.set()  # type: ignore[attr-defined]
            server.shutdown()
            thread.join()


@pytest.fixture(params=["http", "https"])
def scheme(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("SSL_CERT_FILE", replace_file(tmp_path / "ca.pem", certificate_authority().certificate_pem))
    return str(request.param)


def context(scheme: str, folder: Path) -> ssl.SSLContext | None:
    return ReloadableTlsContext("x", server_settings(folder)).context if scheme == "https" else None


@pytest.mark.parametrize("what", ["head", "body"])
def test_slow_jwks_download_is_aborted_after_total_timeout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str, what: str
) -> None:
    monkeypatch.setattr(jwks, "READ_SECONDS_MAX", 1.0)
    with trickling(context(scheme, tmp_path)) as server:
        with pytest.raises(TimeoutError):
            create_key_reader(f"{scheme}://127.0.0.1:{server.server_port}/{what}")()
        assert server.left.wait(DEADLINE_SECONDS), "the connection is closed"


def test_jwks_download_within_timeout_succeeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str) -> None:
    monkeypatch.setattr(jwks, "READ_SECONDS_MAX", DEADLINE_SECONDS)
    with trickling(context(scheme, tmp_path)) as server:
        server.pause.set()
        assert create_key_reader(f"{scheme}://127.0.0.1:{server.server_port}/body")().strip() == b"{}"


def test_jwks_download_with_untrusted_certificate_fails(tmp_path: Path) -> None:
    with trickling(context("https", tmp_path)) as server, pytest.raises(URLError, match="certificate verify failed"):
        create_key_reader(f"https://127.0.0.1:{server.server_port}/body")()
