from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.security.sasl.outcomes import HashPassword, SaslFailure, SaslOutcome, SaslSuccess
from chronik.security.sasl.plain import WRONG_PASSWORD, PlainClient, PlainServer
from chronik.security.sasl.scram import DIFFERENT_AUTHORIZATION_ID
from chronik.security.sasl.scram_keys import MECHANISMS_BY_NAME, ScramKeySet, ScramMechanism, derive_keys, salt_password

SALT = b"salt"


def server(password: str, *, exists: bool = True, mechanism: str = "SCRAM-SHA-256") -> PlainServer:
    scram = MECHANISMS_BY_NAME[mechanism]
    stored_keys = derive_keys(scram, salt_password(password.encode(), SALT, 4096, scram.digest), SALT, 4096)

    def lookup(user: str) -> tuple[ScramMechanism, ScramKeySet, bool]:
        return scram, stored_keys, exists

    return PlainServer(lookup)


def conversation(machine: PlainServer, data: bytes) -> SaslOutcome:
    outcome = machine.step(data)
    assert isinstance(outcome, HashPassword)
    return machine.continue_with_hash(salt_password(outcome.password, outcome.salt, outcome.iterations, outcome.digest))


@pytest.mark.parametrize("mechanism", list(MECHANISMS_BY_NAME))
def test_correct_password_authenticates(mechanism: str) -> None:
    client = PlainClient("älice", "paßwort")
    machine = server("paßwort", mechanism=mechanism)
    assert conversation(machine, client.initial_message()) == SaslSuccess("älice")
    assert client.step(b"") == SaslSuccess("älice")
    assert conversation(server("x"), b"alice\0alice\0x") == SaslSuccess("alice")


def test_wrong_password_and_unknown_user_are_indistinguishable() -> None:
    wrong = conversation(server("x"), b"\0alice\0y")
    assert wrong == SaslFailure("wrong password or unknown user", WRONG_PASSWORD, "alice")
    assert conversation(server("x", exists=False), b"\0alice\0x") == wrong


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", None),
        (b"alice", None),
        (b"\0alice", None),
        (b"\0alice\0x\0", None),
        (b"\0\xff\0x", None),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"bob\0alice\0x", DIFFERENT_AUTHORIZATION_ID),
    ],
)
def test_malformed_plain_message_is_rejected(data: bytes, message: str | None) -> None:
    outcome = server("x").step(data)
    assert isinstance(outcome, SaslFailure)
    assert outcome.client_message == message


def test_second_plain_message_is_rejected() -> None:
    machine = server("x")
    conversation(machine, b"\0alice\0y")
    assert isinstance(machine.step(b"\0alice\0x"), SaslFailure)


@given(st.binary(max_size=200))
def test_random_plain_message_fails_or_is_looked_up(data: bytes) -> None:
    assert isinstance(server("x").step(data), SaslFailure | HashPassword)
