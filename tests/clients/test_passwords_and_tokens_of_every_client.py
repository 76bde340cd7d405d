"""Every client says who it is in every way that it knows: the right password is let in, a wrong one out at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.sasl.asking import AskingBroker

from .issuing import Issuer
from .running import unique
from .securing import CALLS, COUNT, Identity, NotLetIn, skip_unless_here

pytestmark = pytest.mark.slow

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
PASSWORD = "s3cret, with =, and ü"
OUT_SECONDS_MAX = 20.0
"""For a client to be started, on a busy machine, and to give up: none waits for a timeout of its own."""


TAKE_REFUSALS_FOR_SUCCESS = ("kafka-python", "aiokafka", "kafkajs")
"""Of a token: they go on with their first request, which ends the connection, here as in Kafka."""


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def broker(issuer: Issuer) -> Iterator[AskingBroker]:
    configs = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": issuer.file.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "tests",
    }
    with AskingBroker(**configs) as running:
        assert isinstance(running, AskingBroker)
        running.add_user("alice", PASSWORD)
        yield running


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", list(CALLS))
def test_the_right_password_lets_in(
    broker: AskingBroker, issuer: Issuer, client: str, mechanism: str, tmp_path: Path
) -> None:
    skip_unless_here(client)
    who = Identity(mechanism, "alice", issuer.token() if mechanism == "OAUTHBEARER" else PASSWORD)
    assert CALLS[client](broker.bootstrap, unique("topic"), who, tmp_path) == COUNT


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", list(CALLS))
def test_the_wrong_one_is_out_at_once(
    broker: AskingBroker, issuer: Issuer, client: str, mechanism: str, tmp_path: Path
) -> None:
    skip_unless_here(client)
    who = Identity(mechanism, "alice", issuer.token(aud="others") if mechanism == "OAUTHBEARER" else "wrong")
    began = time.monotonic()
    with pytest.raises(NotLetIn) as refused:
        CALLS[client](broker.bootstrap, unique("topic"), who, tmp_path)
    assert time.monotonic() - began < OUT_SECONDS_MAX
    told = str(refused.value)
    words = {"PLAIN": "Invalid username or password", "OAUTHBEARER": "invalid_token"}
    if mechanism == "OAUTHBEARER" and client in TAKE_REFUSALS_FOR_SUCCESS:
        assert "came before it had said who it is" in broker.log or "its token is refused" in broker.log
        return
    assert words.get(mechanism, "invalid credentials with SASL mechanism") in told, told
