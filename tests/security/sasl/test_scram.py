"""SCRAM server and client: the examples of RFC 5802 and 7677, both sides together, and rejected messages."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.security.sasl.outcomes import HashPassword, SaslChallenge, SaslFailure, SaslOutcome, SaslSuccess
from chronik.security.sasl.scram import CLIENT_ITERATIONS_MAX, DIFFERENT_AUTHORIZATION_ID, ScramClient, ScramServer
from chronik.security.sasl.scram_keys import (
    ITERATIONS_MIN,
    MECHANISMS_BY_NAME,
    SALT_BYTES,
    ScramKeySet,
    derive_fake_salt,
    derive_keys,
    salt_password,
)
from tests.run_size import sized

SHA_256 = MECHANISMS_BY_NAME["SCRAM-SHA-256"]

# RFC 7677, section 3
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


derive = cache(salt_password)  # both sides of a test derive the same keys


def keys(password: str, mechanism: str = "SCRAM-SHA-256", salt: bytes = SALT) -> ScramKeySet:
    scram = MECHANISMS_BY_NAME[mechanism]
    return derive_keys(scram, derive(password.encode(), salt, 4096, scram.digest), salt, 4096)


def server(password: str = "pencil", *, exists: bool = True, nonce: str = SERVER_NONCE) -> ScramServer:
    return ScramServer(SHA_256, lambda _: (keys(password), exists), nonce)


def continue_after_hash(client: ScramClient, outcome: SaslOutcome) -> SaslOutcome:
    assert isinstance(outcome, HashPassword)
    return client.continue_with_hash(derive(outcome.password, outcome.salt, outcome.iterations, outcome.digest))


def test_server_handles_example_of_rfc_7677() -> None:
    machine = server()
    assert machine.step(CLIENT_FIRST) == SaslChallenge(SERVER_FIRST)
    assert machine.step(CLIENT_FINAL) == SaslSuccess("user", SERVER_FINAL)


def test_client_handles_example_of_rfc_7677() -> None:
    machine = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    assert machine.initial_message() == CLIENT_FIRST
    assert continue_after_hash(machine, machine.step(SERVER_FIRST)) == SaslChallenge(CLIENT_FINAL)
    assert machine.step(SERVER_FINAL) == SaslSuccess("user")


def test_password_hash_matches_example_of_rfc_5802() -> None:
    """The example of the RFC uses SHA-1, which is not supported for authentication."""
    client_key = SHA_256._replace(digest="sha1").hmac(
        salt_password(b"pencil", b64decode("QSXCR+Q6sek8bf92"), 4096, "sha1"), b"Client Key"
    )
    assert hashlib.sha1(client_key).hexdigest() == "e9d94660c39d65c38fbad91c358f14da0eef2bd6"


@pytest.mark.parametrize("mechanism", list(MECHANISMS_BY_NAME))
@settings(max_examples=sized(50, 2000), deadline=None)
@given(user=st.text(min_size=1).filter(lambda name: "\0" not in name), password=st.text(min_size=1))
def test_client_and_server_authenticate_each_other(mechanism: str, user: str, password: str) -> None:
    try:
        user.encode(), password.encode()
    except UnicodeEncodeError:
        return
    scram = MECHANISMS_BY_NAME[mechanism]
    looked_up: list[str] = []

    def lookup(name: str) -> tuple[ScramKeySet, bool]:
        looked_up.append(name)
        return keys(password, mechanism), True

    client, machine = ScramClient(scram, user, password, "abc"), ScramServer(scram, lookup, "def")
    first = machine.step(client.initial_message())
    assert isinstance(first, SaslChallenge)
    final = continue_after_hash(client, client.step(first.data))
    assert isinstance(final, SaslChallenge)
    last = machine.step(final.data)
    assert isinstance(last, SaslSuccess)
    assert (last.user, looked_up) == (user, [user])
    assert client.step(last.data) == SaslSuccess(user)


def conversation(machine: ScramServer, password: str) -> SaslOutcome:
    client = ScramClient(SHA_256, "user", password, CLIENT_NONCE)
    first = machine.step(client.initial_message())
    assert isinstance(first, SaslChallenge)
    final = continue_after_hash(client, client.step(first.data))
    assert isinstance(final, SaslChallenge)
    return machine.step(final.data)


def test_wrong_password_and_unknown_user_are_indistinguishable() -> None:
    wrong, unknown = conversation(server(), "pencils"), conversation(server(exists=False), "pencil")
    assert isinstance(wrong, SaslFailure)
    assert wrong == unknown
    assert wrong.client_message is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=more,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a\x00b",
        b"n,,n=us\xffer,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,a=other,n=user,r=abc",
        b"\xff" * 100,
    ],
)
def test_malformed_first_message_is_rejected(first: bytes) -> None:
    outcome = server().step(first)
    assert isinstance(outcome, SaslFailure)
    assert (outcome.client_message == DIFFERENT_AUTHORIZATION_ID) == first.startswith(b"n,a=other")


def test_scram_extensions_are_ignored_but_signed() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    client._bare += b",x=more"
    machine = server()
    first = machine.step(client.initial_message())
    assert isinstance(first, SaslChallenge)
    final = continue_after_hash(client, client.step(first.data))
    assert isinstance(final, SaslChallenge)
    assert isinstance(machine.step(final.data), SaslSuccess)


@pytest.mark.parametrize(
    ("part", "replacement"),
    [
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c="),
        (b"c=biws", b"c=!"),
        (b"r=rOpr", b"r=rOpq"),
        (b"k0,p=", b"k1,p="),
        (b"p=dHzb", b"p=dHzc"),
        (CLIENT_FINAL[CLIENT_FINAL.index(b"p=") :], b"p="),
        (CLIENT_FINAL[CLIENT_FINAL.index(b"p=") :], b"p=" + b64encode(b"short")),
        (CLIENT_FINAL, b""),
    ],
)
def test_modified_final_message_is_rejected(part: bytes, replacement: bytes) -> None:
    machine = server()
    machine.step(CLIENT_FIRST)
    assert isinstance(machine.step(CLIENT_FINAL.replace(part, replacement)), SaslFailure)


def test_replayed_final_message_is_rejected() -> None:
    machine = server(nonce="another")
    machine.step(CLIENT_FIRST)
    assert isinstance(machine.step(CLIENT_FINAL), SaslFailure)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"r=other,s=c2FsdA==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=c2FsdA==,i=4096",
        SERVER_FIRST.replace(b"i=4096", b"i=%d" % (ITERATIONS_MIN - 1)),
        SERVER_FIRST.replace(b"i=4096", b"i=%d" % (CLIENT_ITERATIONS_MAX + 1)),
        SERVER_FIRST.replace(b"i=4096", b"i=x"),
        SERVER_FIRST.replace(b"W22Z", b"W2=Z"),
    ],
)
def test_client_rejects_invalid_first_server_message(first: bytes) -> None:
    assert isinstance(ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE).step(first), SaslFailure)


@pytest.mark.parametrize("iterations", [ITERATIONS_MIN, CLIENT_ITERATIONS_MAX])
def test_client_accepts_allowed_iteration_counts(iterations: int) -> None:
    first = SERVER_FIRST.replace(b"i=4096", b"i=%d" % iterations)
    assert isinstance(ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE).step(first), HashPassword)


@pytest.mark.parametrize("final", [b"", b"e=invalid-proof", b"v=AAAA", b"v=====", SERVER_FINAL[:-4] + b"AAA="])
def test_client_rejects_invalid_server_signature(final: bytes) -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    continue_after_hash(client, client.step(SERVER_FIRST))
    assert isinstance(client.step(final), SaslFailure)


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_random_messages_are_rejected(frames: list[bytes]) -> None:
    machine = server()
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    for frame in frames:
        assert isinstance(machine.step(frame), SaslFailure)
        assert isinstance(client.step(frame), SaslFailure)


@pytest.mark.parametrize("first", [b"n,,n=u,r=a" + b",x=y" * 10_000 + b",", b"n,,n=" + b"=2C" * 20_000])
def test_long_scram_messages_are_parsed_in_linear_time(first: bytes) -> None:
    assert isinstance(server().step(first), SaslFailure)
    machine = server()
    machine.step(CLIENT_FIRST)
    assert isinstance(machine.step(b"c=biws,r=a" + b",p=" * 20_000), SaslFailure)


def test_fake_salts_are_stable_and_look_like_real_ones() -> None:
    def salt(secret: bytes, user: str) -> bytes:
        return derive_fake_salt(secret, "SCRAM-SHA-256", user, SALT_BYTES, is_lower_alphanumeric=True)

    assert salt(b"s", "bob") == salt(b"s", "bob")
    assert len({salt(b"s", "bob"), salt(b"s", "eve"), salt(b"t", "bob")}) == 3
    assert salt(b"s", "bob").isalnum()
    assert len(salt(b"s", "bob")) == SALT_BYTES
    assert len(derive_fake_salt(b"s", "SCRAM-SHA-512", "bob", 64, is_lower_alphanumeric=False)) == 64


def test_repr_of_scram_objects_contains_no_password() -> None:
    assert "pencil" not in repr(HashPassword(b"pencil", b"", 1, "sha256"))
    assert "pencil" not in repr(SaslChallenge(b"pencil"))
    assert "pencil" not in repr(ScramKeySet(b"pencil", 1, b"pencil", b"pencil"))
