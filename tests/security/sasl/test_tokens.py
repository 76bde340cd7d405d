"""JSON Web Tokens: signature, claims, and the key set that verifies them."""

from __future__ import annotations

import json
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws, jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from chronik import limits
from chronik.clock import ManualClock
from chronik.errors import ConfigError
from chronik.security.sasl import jwks
from chronik.security.sasl.jwks import JwksCache, KeysLoading, KeysUnavailable, create_key_reader, parse_keys
from chronik.security.sasl.outcomes import InvalidToken, ValidToken
from chronik.security.sasl.tokens import JwtValidator, TokenSettings

T = TypeVar("T")

NOW = 1_700_000_000
DEADLINE_SECONDS = 20.0


@cache
def key(kid: str = "one") -> Any:
    return ECKey.generate_key("P-256", {"kid": kid, "use": "sig"})


def published(*keys: Any) -> bytes:
    return json.dumps(KeySet(list(keys)).as_dict(private=False)).encode()


def token(claims: dict[str, Any] | None = None, *, signed_by: Any = None, **header: Any) -> str:
    content = {"sub": "alice", "iat": NOW, "exp": NOW + 60} | (claims or {})
    content = {name: value for name, value in content.items() if value is not None}
    return jwt.encode({"alg": "ES256", "kid": "one"} | header, content, signed_by or key())


def in_base64(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def when_read(call: Callable[[], T]) -> T:
    """Call the function, and call it again after the keys are loaded if it had to wait for them."""
    try:
        return call()
    except KeysLoading as awaited:
        awaited.loaded.result(DEADLINE_SECONDS)
        return call()


def validator(settings: TokenSettings | None = None, data: bytes | None = None) -> Callable[[str], ValidToken]:
    source = JwksCache(lambda: published(key()) if data is None else data, 3600, 0.1)
    validate = JwtValidator(settings or TokenSettings(), source, ManualClock(NOW * 1000).now_ms)
    return lambda text_of_token: when_read(lambda: validate(text_of_token))


def test_valid_token_returns_user_and_scopes() -> None:
    assert validator()(token({"scope": "a b"})) == ValidToken("alice", (NOW + 60) * 1000, frozenset({"a", "b"}))
    named = TokenSettings(sub_claim="client_id", scope_claim="scp")
    assert validator(named)(token({"client_id": "bob", "scp": ["x"]})).user == "bob"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW - 31}, "expired"),
        ({"exp": None}, "claim exp"),
        ({"exp": "soon"}, "claim exp"),
        ({"exp": True}, "claim exp"),
        ({"exp": 1e300}, "claim exp"),
        ({"iat": None}, "claim iat"),
        ({"iat": NOW + 31}, "in the future"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"sub": None}, "claim sub"),
        ({"sub": " "}, "claim sub"),
        ({"sub": 5}, "claim sub"),
        ({"iss": "other"}, "wrong issuer"),
        ({"aud": "other"}, "wrong audience"),
        ({"aud": ["x", "other"]}, "wrong audience"),
        ({"aud": None}, "wrong audience"),
    ],
)
def test_token_with_invalid_claim_is_rejected(claims: dict[str, Any], reason: str) -> None:
    strict = TokenSettings(issuer="us", audiences=frozenset({"kafka", "k2"}))
    with pytest.raises(InvalidToken, match=reason):
        validator(strict)(token({"iss": "us", "aud": "kafka"} | claims))


def test_token_with_lone_surrogate_in_subject_is_rejected() -> None:
    claims = json.dumps({"sub": "a\ud800", "iat": NOW, "exp": NOW + 60}).encode()
    with pytest.raises(InvalidToken, match="claim sub"):
        validator()(jws.serialize_compact({"alg": "ES256", "kid": "one"}, claims, key()))


@pytest.mark.parametrize("claims", [{"exp": NOW - 29}, {"iat": NOW + 29, "nbf": NOW + 29}, {"aud": ["x", "k2"]}])
def test_token_is_accepted_with_clock_skew_and_multiple_audiences(claims: dict[str, Any]) -> None:
    strict = TokenSettings(issuer="us", audiences=frozenset({"kafka", "k2"}))
    assert validator(strict)(token({"iss": "us", "aud": "kafka"} | claims)).user == "alice"


def test_forged_tokens_are_rejected() -> None:
    public = published(key())
    shared = OctKey.import_key(public)
    forged = [
        token(signed_by=ECKey.generate_key("P-256", {"kid": "one"})),
        jwt.encode({"alg": "HS256", "kid": "one"}, {"sub": "alice", "iat": NOW, "exp": NOW + 60}, shared),
        ".".join([*map(in_base64, ({"alg": "none", "kid": "one"}, {"sub": "alice", "iat": NOW, "exp": NOW + 60})), ""]),
        token(kid="two"),
        in_base64({"alg": "ES256", "kid": 5}) + token()[token().index(".") :],
        token()[:-4] + "AAAA",
        "a.b.c",
        "",
        token() + "." + token(),
    ]
    for each in forged:
        with pytest.raises(InvalidToken) as raised:
            validator()(each)
        assert "alice" not in str(raised.value)


def test_rsa_signed_token_is_accepted() -> None:
    rsa = RSAKey.generate_key(2048, {"kid": "rsa"})
    assert validator(data=published(key(), rsa))(token(signed_by=rsa, alg="RS256", kid="rsa")).user == "alice"


@given(st.text(alphabet="-_.abcXYZ019", max_size=200))
def test_random_tokens_are_rejected(text: str) -> None:
    with pytest.raises(InvalidToken):
        validator()(text)


@pytest.mark.parametrize("header", ['["alg"]', '"alg"', "7", "null"])
def test_token_with_invalid_header_is_rejected(header: str) -> None:
    first = urlsafe_b64encode(header.encode()).rstrip(b"=").decode()
    with pytest.raises(InvalidToken):
        validator()(".".join([first, *token().split(".")[1:]]))


def test_unusable_keys_in_jwks_are_ignored() -> None:
    content = json.loads(published(key()))
    content["keys"] += [
        {"kty": "oct", "k": "AAAA", "kid": "shared"},
        {"kty": "RSA", "kid": "half"},
        "x",
        {"kty": "new"},
    ]
    assert set(parse_keys(json.dumps(content).encode())) == {"one"}
    for data in (b"[]", b"{}", b"x"):
        with pytest.raises(ValueError, match=r"."):
            parse_keys(data)


class CountingSource:
    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.count = 0
        self.was_read = threading.Semaphore(0)

    def __call__(self) -> bytes:
        answer = self.answers[min(self.count, len(self.answers) - 1)]
        self.count += 1
        self.was_read.release()
        if isinstance(answer, Exception):
            raise answer
        return answer


def until(condition: Callable[[], bool]) -> None:
    deadline = threading.Event()
    for _ in range(1000):
        if condition():
            return
        deadline.wait(0.01)
    raise AssertionError("timeout")


def test_expired_keys_are_reloaded_in_background() -> None:
    clock, source = ManualClock(), CountingSource(published(key()), published(key(), key("two")))
    keys = JwksCache(source, 60, 0.1, clock.monotonic)
    clock.advance(100)
    assert when_read(lambda: keys.find_key("one")) is not None
    assert when_read(lambda: keys.find_key(None)) is not None
    assert source.count == 1
    clock.advance(59)
    when_read(lambda: keys.find_key("one"))
    assert source.count == 1
    clock.advance(1)
    when_read(lambda: keys.find_key("one"))
    until(lambda: keys._keys is not None and len(keys._keys) == 2)
    assert when_read(lambda: keys.find_key(None)) is None, "there are two keys, and the token names none"


def test_unknown_key_id_triggers_rate_limited_reload() -> None:
    clock, source = ManualClock(), CountingSource(published(key()), published(key(), key("two")))
    keys = JwksCache(source, 3600, 0.1, clock.monotonic)
    clock.advance(100)
    when_read(lambda: keys.find_key("one"))
    assert when_read(lambda: keys.find_key("two")) is None
    clock.advance(jwks.UNKNOWN_KEY_SECONDS)
    assert when_read(lambda: keys.find_key("two")) is not None
    for _ in range(10):
        assert when_read(lambda: keys.find_key("three")) is None
    assert source.count == 2


def test_previous_keys_are_kept_when_reload_fails(caplog: pytest.LogCaptureFixture) -> None:
    clock, source = ManualClock(), CountingSource(OSError("gone"), published(key()), OSError("gone"))
    keys = JwksCache(source, 60, 0.1, clock.monotonic)
    clock.advance(100)
    with pytest.raises(KeysUnavailable):
        when_read(lambda: keys.find_key("one"))
    clock.advance(1)
    assert when_read(lambda: keys.find_key("one")) is not None
    clock.advance(61)
    assert when_read(lambda: keys.find_key("one")) is not None
    until(lambda: source.count == 3)
    assert when_read(lambda: keys.find_key("one")) is not None
    assert "the JWKS of token keys cannot be loaded: gone" in caplog.text


def test_jwks_is_loaded_from_file_and_http(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(published(key()))
    assert create_key_reader(file.as_uri())() == published(key())
    file.write_bytes(bytes(limits.JWKS_BYTES_MAX))
    assert len(create_key_reader(file.as_uri())()) == limits.JWKS_BYTES_MAX
    file.write_bytes(bytes(limits.JWKS_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="more than"):
        create_key_reader(file.as_uri())()
    for wrong in ("ftp://x/y", "keys.json", "http://", ""):
        with pytest.raises(ConfigError, match="expected a URL"):
            create_key_reader(wrong)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"told")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert create_key_reader(f"http://127.0.0.1:{server.server_port}/keys")() == b"told"
        thread.join()
