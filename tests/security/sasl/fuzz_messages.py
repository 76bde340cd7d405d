"""Fuzzing of SASL messages and tokens: no client is authenticated without valid credentials."""

from __future__ import annotations

import json
import random
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from functools import cache
from typing import Any, Final, NamedTuple

from joserfc import jws
from joserfc.jwk import ECKey, KeySet, RSAKey

from chronik.security.sasl.jwks import READ_SECONDS_MAX, JwksCache, KeysLoading
from chronik.security.sasl.oauthbearer import OAuthBearerServer
from chronik.security.sasl.outcomes import (
    MECHANISMS,
    HashPassword,
    InvalidToken,
    SaslChallenge,
    SaslFailure,
    SaslOutcome,
    SaslSuccess,
    ValidateToken,
    ValidToken,
)
from chronik.security.sasl.plain import PlainServer
from chronik.security.sasl.scram import ScramClient, ScramServer
from chronik.security.sasl.scram_keys import MECHANISMS_BY_NAME, ScramKeySet, ScramMechanism, derive_keys, salt_password
from chronik.security.sasl.session import HandshakeResult, MechanismServer, SaslSession
from chronik.security.sasl.tokens import JwtValidator, TokenSettings
from tests.security.fuzz_framework import FuzzTarget, mutate

USER, PASSWORD, SALT, ITERATIONS = "alice", "right", b"salt of alice", 4096
NOW: Final = 1_700_000_000
SCRAM_FRAGMENTS: Final = (
    b",",
    b"=",
    b"n,,",
    b"y,,",
    b"p=x,",
    b"a=",
    b"n=",
    b"r=",
    b"m=",
    b"=2C",
    b"=3D",
    b"=2",
    b"c=biws",
    b"p=",
)
BEARER_FRAGMENTS: Final = (
    b"\x01",
    b"auth=",
    b"Bearer ",
    b"n,,",
    b"a=bob",
    b"\0",
    b"host=x\x01",
    b"auth=Bearer a.b.c\x01",
)


@cache
def salted_password(name: str) -> bytes:
    return salt_password(PASSWORD.encode(), SALT, ITERATIONS, MECHANISMS_BY_NAME[name].digest)


def keys(scram: ScramMechanism, user: str) -> tuple[ScramKeySet, bool]:
    """Return alice's keys for every user, and that only alice exists."""
    return derive_keys(scram, salted_password(scram.name), SALT, ITERATIONS), user == USER


class ScramCase(NamedTuple):
    mechanism: str
    seed: int


def scram_cases(rng: random.Random) -> ScramCase:
    return ScramCase(rng.choice(list(MECHANISMS_BY_NAME)), rng.getrandbits(64))


def scram_server(case: ScramCase) -> str:
    """Run a server with a client that knows the password and whose messages are mutated on the way."""
    rng, scram = random.Random(case.seed), MECHANISMS_BY_NAME[case.mechanism]
    client = ScramClient(scram, USER, PASSWORD, "client")
    server = ScramServer(scram, lambda user: keys(scram, user), "server")
    first = client.initial_message()
    received = mutate(rng, first, SCRAM_FRAGMENTS)
    challenge = server.step(received)
    if isinstance(challenge, SaslFailure):
        return "rejected immediately"
    assert isinstance(challenge, SaslChallenge)
    if not isinstance(client.step(challenge.data), HashPassword):
        return "not the client's"
    final = client.continue_with_hash(salted_password(scram.name))
    assert isinstance(final, SaslChallenge)
    received_final = mutate(rng, final.data, SCRAM_FRAGMENTS)
    outcome = server.step(received_final)
    is_unmodified = received == first and _proof(received_final) == _proof(final.data)
    assert isinstance(outcome, SaslSuccess if is_unmodified else SaslFailure), outcome
    return "authenticated" if is_unmodified else "rejected"


def _proof(final: bytes) -> tuple[bytes, bytes] | None:
    """Return the text before the proof, and the decoded proof, because its last base64 character has unused bits."""
    before, found, proof = final.rpartition(b",p=")
    try:
        return (before, b64decode(proof, validate=True)) if found else None
    except ValueError:
        return None


def scram_client(case: ScramCase) -> str:
    """Run a client with an impostor as the server."""
    rng, scram = random.Random(case.seed), MECHANISMS_BY_NAME[case.mechanism]
    client = ScramClient(scram, USER, PASSWORD, "client")
    first = b"r=clientserver,s=" + b64encode(SALT) + b",i=4096"
    outcome = client.step(mutate(rng, first, (*SCRAM_FRAGMENTS, b"s=", b"i=999999999", b"e=other-error", b"v=")))
    if isinstance(outcome, SaslFailure):
        return "distrusted immediately"
    assert isinstance(outcome, HashPassword)
    client.continue_with_hash(salted_password(scram.name))
    last = client.step(mutate(rng, b"v=" + b64encode(rng.randbytes(scram.size)), SCRAM_FRAGMENTS))
    assert isinstance(last, SaslFailure), last
    return "distrusted"


def bearer_cases(rng: random.Random) -> list[bytes]:
    first = b"n,a=alice,\x01host=x\x01auth=Bearer abc.def.ghi\x01\x01"
    return [mutate(rng, first, BEARER_FRAGMENTS) for _ in range(2)]


def run_bearer(messages: list[bytes]) -> str:
    server = OAuthBearerServer()
    outcome = server.step(messages[0])
    assert isinstance(outcome, ValidateToken | SaslFailure)
    if isinstance(outcome, SaslFailure):
        return "rejected"
    assert isinstance(server.continue_with_token(InvalidToken("x")), SaslChallenge)
    assert isinstance(server.step(messages[1]), SaslFailure)
    return "validated"


# Tokens


@cache
def signers() -> dict[str, Any]:
    rsa = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
    return {"ES256": ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"}), "RS256": rsa}


@cache
def validator(*audiences: str) -> JwtValidator:
    published = json.dumps(KeySet(list(signers().values())).as_dict(private=False)).encode()
    source = JwksCache(lambda: published, 3600, 3600)
    try:
        source.find_key(None)
    except KeysLoading as awaited:
        awaited.loaded.result(READ_SECONDS_MAX)
    return JwtValidator(TokenSettings(audiences=frozenset(audiences)), source, lambda: NOW * 1000)


VALUES: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 1, NOW, NOW + 60, 2**63, 10**300, 1e308, float("nan"), float("inf"), "", " ", "bob", "\ud800"),
    *("\0", "x" * 20_000, [], ["kafka"], [None], {}, {"a": {}}, ["b64"], "none", "HS256", "RS256", "ES256", "dir"),
)
HEADERS: Final = ("alg", "kid", "typ", "crit", "b64", "zip", "jwk", "jku", "x5c", "enc")
CLAIMS: Final = ("sub", "iat", "exp", "nbf", "iss", "aud", "scope", "")


class Token(NamedTuple):
    text: str
    is_signed: bool
    """Whether it is unmodified and signed with a trusted key."""


def token_cases(rng: random.Random) -> Token:
    algorithm = rng.choice(("ES256", "ES256", "ES256", "RS256"))
    key = signers()[algorithm]
    header = {"alg": algorithm, "kid": key.kid}
    claims = {"sub": USER, "iat": NOW, "exp": NOW + 60, "aud": "kafka"}
    payload = _encoded(_with_faults(rng, claims, CLAIMS))
    if rng.random() < 0.3:
        payload = mutate(rng, payload, (b"{", b"[", b'"', b"\\ud800", b":1e999,", b"9" * 5_000, b"[" * 3_000))
    signed = jws.serialize_compact(header, payload, key)
    return _tampered(rng, signed, header)


def _tampered(rng: random.Random, signed: str, header: dict[str, Any]) -> Token:
    """Return the token, modified half of the time."""
    parts = [_decoded(part) for part in signed.split(".")]
    before = list(parts)
    match rng.randrange(6):
        case 0:
            parts[0] = _encoded(_with_faults(rng, header, HEADERS))
        case 1:
            at = rng.randrange(3)
            parts[at] = mutate(rng, parts[at], (b"{", b'"', b"[" * 3_000))
        case 2:
            text = mutate(rng, signed.encode(), (b".", b"..", b"=", b"-", b"A")).decode(errors="replace")
            return Token(text, [_decoded(part) for part in text.split(".")] == before)
    text = ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
    return Token(text, parts == before)


def _with_faults(rng: random.Random, given: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    changed = dict(given)
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice(names)
        if rng.random() < 0.2:
            changed.pop(name, None)
        else:
            changed[name] = rng.choice(VALUES)
    return changed


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def _decoded(part: str) -> bytes:
    """Return the decoded part, or nothing if it is not base64: no part of a signed token is empty."""
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        return b""


def validate_token(case: Token) -> str:
    found = validator("kafka")(case.text)
    assert case.is_signed, "a modified token was accepted"
    assert found.user.strip() == found.user != ""
    found.user.encode()  # it is sent, logged and stored
    assert found.expires_ms > NOW * 1000 - 31_000
    return "accepted"


# Sessions with messages in any order


def session_cases(rng: random.Random) -> list[tuple[str, int, bytes]]:
    """Return steps: handshakes with a mechanism and version, or messages."""
    messages = (
        b"n,,n=alice,r=abc",
        b"\0alice\0right",
        b"\0alice\0wrong",
        b"n,,\x01auth=Bearer a.b.c\x01\x01",
        b"\x01",
        b"",
    )
    steps = []
    for number in range(rng.randrange(1, 8)):
        is_handshake = rng.random() < (0.9 if number == 0 else 0.2)
        mechanism = rng.choice((*MECHANISMS, "X" * 300)) if is_handshake else ""
        steps.append(
            (mechanism, rng.randrange(2), mutate(rng, rng.choice(messages), (*SCRAM_FRAGMENTS, *BEARER_FRAGMENTS)))
        )
    return steps


def run_session(steps: list[tuple[str, int, bytes]]) -> str:
    sasl_session = SaslSession(lambda: MECHANISMS, _machine, lambda mechanism: 1000)
    for now, (mechanism, version, data) in enumerate(steps):
        if mechanism:
            assert isinstance(sasl_session.handshake(mechanism, version, float(now)), HandshakeResult)
            continue
        answer = sasl_session.process_outcome(_resolve(sasl_session, sasl_session.step(data)), float(now), NOW * 1000)
        assert len((answer.error or "").encode()) < 70_000
        answer.rejection_reason.encode()
        if answer.error is not None:
            return "rejected"
    if sasl_session.principal is None:
        return "unauthenticated"
    assert sasl_session.principal.name in (USER, "token's")
    return "authenticated"


def _machine(mechanism: str) -> MechanismServer:
    if mechanism == "PLAIN":
        scram = MECHANISMS_BY_NAME["SCRAM-SHA-256"]
        return PlainServer(lambda user: (scram, *keys(scram, user)))
    if mechanism == "OAUTHBEARER":
        return OAuthBearerServer()
    scram = MECHANISMS_BY_NAME[mechanism]
    return ScramServer(scram, lambda user: keys(scram, user), "server")


def _resolve(sasl_session: SaslSession, outcome: SaslOutcome) -> SaslOutcome:
    machine = sasl_session.machine
    if isinstance(outcome, HashPassword):
        assert isinstance(machine, PlainServer)
        is_right = outcome.password == PASSWORD.encode()
        return machine.continue_with_hash(salted_password("SCRAM-SHA-256") if is_right else b"wrong")
    if isinstance(outcome, ValidateToken):
        assert isinstance(machine, OAuthBearerServer)
        return machine.continue_with_token(ValidToken("token's", (NOW + 60) * 1000))
    return outcome


TARGETS: Final = (
    FuzzTarget("SCRAM server", scram_cases, scram_server),
    FuzzTarget("SCRAM client", scram_cases, scram_client),
    FuzzTarget("OAUTHBEARER", bearer_cases, run_bearer),
    FuzzTarget("tokens", token_cases, validate_token, (InvalidToken,)),
    FuzzTarget("sessions", session_cases, run_session),
)
