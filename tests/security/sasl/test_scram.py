"""SCRAM server and client: the examples of RFC 5802 and 7677, both sides together, and rejected messages."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.security.sasl.outcomes import Challenge, Derive, Failure, Outcome, Success
from chronik.security.sasl.scram import CLIENT_ITERATIONS_MAX, OTHER_USER, ScramClient, ScramServer
from chronik.security.sasl.scram_keys import BY_NAME, ITERATIONS_MIN, SALT_BYTES, Keys, derived_salt, keys_of, salted
from tests.long import count

SHA_256 = BY_NAME["SCRAM-SHA-256"]

# RFC 7677, section 3
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


derive = cache(salted)  # both sides of a test derive the same keys


def keys(password: str, mechanism: str = "SCRAM-SHA-256", salt: bytes = SALT) -> Keys:
    scram = BY_NAME[mechanism]
    return keys_of(scram, derive(password.encode(), salt, 4096, scram.digest), salt, 4096)


def server(password: str = "pencil", *, exists: bool = True, nonce: str = SERVER_NONCE) -> ScramServer:
    return ScramServer(SHA_256, lambda _: (keys(password), exists), nonce)


def continue_after_hash(client: ScramClient, outcome: Outcome) -> Outcome:
    assert isinstance(outcome, Derive)
    return client.derived(derive(outcome.password, outcome.salt, outcome.iterations, outcome.digest))


def test_server_handles_example_of_rfc_7677() -> None:
    machine = server()
    assert machine.step(CLIENT_FIRST) == Challenge(SERVER_FIRST)
    assert machine.step(CLIENT_FINAL) == Success("user", SERVER_FINAL)


def test_client_handles_example_of_rfc_7677() -> None:
    machine = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    assert machine.first() == CLIENT_FIRST
    assert continue_after_hash(machine, machine.step(SERVER_FIRST)) == Challenge(CLIENT_FINAL)
    assert machine.step(SERVER_FINAL) == Success("user")


def test_password_hash_matches_example_of_rfc_5802() -> None:
    """The example of the RFC uses SHA-1, which is not supported for authentication."""
    client_key = SHA_256._replace(digest="sha1").hmac(
        salted(b"pencil", b64decode("QSXCR+Q6sek8bf92"), 4096, "sha1"), b"Client Key"
    )
    assert hashlib.sha1(client_key).hexdigest() == "e9d94660c39d65c38fbad91c358f14da0eef2bd6"


@pytest.mark.parametrize("mechanism", list(BY_NAME))
@settings(max_examples=count(50, 2000), deadline=None)
@given(user=st.text(min_size=1).filter(lambda name: "\0" not in name), password=st.text(min_size=1))
def test_client_and_server_authenticate_each_other(mechanism: str, user: str, password: str) -> None:
    try:
        user.encode(), password.encode()
    except UnicodeEncodeError:
        return
    scram = BY_NAME[mechanism]
    looked_up: list[str] = []

    def lookup(name: str) -> tuple[Keys, bool]:
        looked_up.append(name)
        return keys(password, mechanism), True

    client, machine = ScramClient(scram, user, password, "abc"), ScramServer(scram, lookup, "def")
    first = machine.step(client.first())
    assert isinstance(first, Challenge)
    final = continue_after_hash(client, client.step(first.data))
    assert isinstance(final, Challenge)
    last = machine.step(final.data)
    assert isinstance(last, Success)
    assert (last.user, looked_up) == (user, [user])
    assert client.step(last.data) == Success(user)


def conversation(machine: ScramServer, password: str) -> Outcome:
    client = ScramClient(SHA_256, "user", password, CLIENT_NONCE)
    first = machine.step(client.first())
    assert isinstance(first, Challenge)
    final = continue_after_hash(client, client.step(first.data))
    assert isinstance(final, Challenge)
    return machine.step(final.data)


def test_wrong_password_and_unknown_user_are_indistinguishable() -> None:
    wrong, unknown = conversation(server(), "pencils"), conversation(server(exists=False), "pencil")
    assert isinstance(wrong, Failure)
    assert wrong == unknown
    assert wrong.told is None


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
    assert isinstance(outcome, Failure)
    assert (outcome.told == OTHER_USER) == first.startswith(b"n,a=other")


def test_scram_extensions_are_ignored_but_signed() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    client._bare += b",x=more"
    machine = server()
    first = machine.step(client.first())
    assert isinstance(first, Challenge)
    final = continue_after_hash(client, client.step(first.data))
    assert isinstance(final, Challenge)
    assert isinstance(machine.step(final.data), Success)


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
    assert isinstance(machine.step(CLIENT_FINAL.replace(part, replacement)), Failure)


def test_replayed_final_message_is_rejected() -> None:
    machine = server(nonce="another")
    machine.step(CLIENT_FIRST)
    assert isinstance(machine.step(CLIENT_FINAL), Failure)


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
    assert isinstance(ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE).step(first), Failure)


@pytest.mark.parametrize("iterations", [ITERATIONS_MIN, CLIENT_ITERATIONS_MAX])
def test_client_accepts_allowed_iteration_counts(iterations: int) -> None:
    first = SERVER_FIRST.replace(b"i=4096", b"i=%d" % iterations)
    assert isinstance(ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE).step(first), Derive)


@pytest.mark.parametrize("final", [b"", b"e=invalid-proof", b"v=AAAA", b"v=====", SERVER_FINAL[:-4] + b"AAA="])
def test_client_rejects_invalid_server_signature(final: bytes) -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    continue_after_hash(client, client.step(SERVER_FIRST))
    assert isinstance(client.step(final), Failure)


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_random_messages_are_rejected(frames: list[bytes]) -> None:
    machine = server()
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    for frame in frames:
        assert isinstance(machine.step(frame), Failure)
        assert isinstance(client.step(frame), Failure)


@pytest.mark.parametrize("first", [b"n,,n=u,r=a" + b",x=y" * 10_000 + b",", b"n,,n=" + b"=2C" * 20_000])
def test_long_scram_messages_are_parsed_in_linear_time(first: bytes) -> None:
    assert isinstance(server().step(first), Failure)
    machine = server()
    machine.step(CLIENT_FIRST)
    assert isinstance(machine.step(b"c=biws,r=a" + b",p=" * 20_000), Failure)


def test_fake_salts_are_stable_and_look_like_real_ones() -> None:
    def salt(secret: bytes, user: str) -> bytes:
        return derived_salt(secret, "SCRAM-SHA-256", user, SALT_BYTES, is_lower_alphanumeric=True)

    assert salt(b"s", "bob") == salt(b"s", "bob")
    assert len({salt(b"s", "bob"), salt(b"s", "eve"), salt(b"t", "bob")}) == 3
    assert salt(b"s", "bob").isalnum()
    assert len(salt(b"s", "bob")) == SALT_BYTES
    assert len(derived_salt(b"s", "SCRAM-SHA-512", "bob", 64, is_lower_alphanumeric=False)) == 64


def test_repr_of_scram_objects_contains_no_password() -> None:
    assert "pencil" not in repr(Derive(b"pencil", b"", 1, "sha256"))
    assert "pencil" not in repr(Challenge(b"pencil"))
    assert "pencil" not in repr(Keys(b"pencil", 1, b"pencil", b"pencil"))
