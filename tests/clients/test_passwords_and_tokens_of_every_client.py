"""Every client says who it is in every way that it knows, over TLS and without: the right password is let in, a wrong
one out at once."""

from __future__ import annotations

import time
from itertools import product

import pytest

from tests.long import LONG

from .catalogue import SECURED
from .drivers.secured import COUNT, NOT_LET_IN
from .issuing import Issuer
from .running import Clients, CommandFailed
from .securing import MECHANISMS, PASSWORD, GuardedBroker, came_in

pytestmark = pytest.mark.slow

ALL = list(product(["SASL", "SASL_TLS", "SASL_MUTUAL_TLS"], MECHANISMS))
ONE = "SCRAM-SHA-512"
"""It stands for all mechanisms in the short run where the line alone is another: clients have one code for all."""
RIGHT = ALL if LONG else [(line, mechanism) for line, mechanism in ALL if "MUTUAL" not in line or mechanism == ONE]
WRONG = ALL if LONG else [("SASL", mechanism) for mechanism in MECHANISMS] + [("SASL_TLS", ONE)]

OUT_SECONDS_MAX = 10.0
"""To give up, on a busy machine: none waits for a timeout of its own, but kafka-python, whose driver sets it to 5 s."""

TAKE_REFUSALS_FOR_SUCCESS = ("kafka-python", "aiokafka", "kafkajs")
"""Of a token: they go on with their first request, which ends the connection, here as in Kafka."""


@pytest.mark.parametrize(("line", "mechanism"), RIGHT)
@pytest.mark.parametrize("client", list(SECURED))
def test_the_right_password_lets_in(
    guarded_broker: GuardedBroker, issuer: Issuer, secured_clients: Clients, client: str, line: str, mechanism: str
) -> None:
    way = guarded_broker.way(line, mechanism, issuer.url() if mechanism == "OAUTHBEARER" else PASSWORD)
    assert came_in(secured_clients.get(client), way) == COUNT


@pytest.mark.parametrize(("line", "mechanism"), WRONG)
@pytest.mark.parametrize("client", list(SECURED))
def test_the_wrong_one_is_out_at_once(
    guarded_broker: GuardedBroker, issuer: Issuer, secured_clients: Clients, client: str, line: str, mechanism: str
) -> None:
    running = secured_clients.get(client)
    secret = issuer.url(aud="others") if mechanism == "OAUTHBEARER" else "wrong"
    began = time.time()
    with pytest.raises(CommandFailed) as refused:
        came_in(running, guarded_broker.way(line, mechanism, secret))
    assert time.time() - began < OUT_SECONDS_MAX
    assert refused.value.name == NOT_LET_IN
    answered = {each.api for each in guarded_broker.last_requests() if each.answered_at > began}
    assert {"SaslAuthenticate"} <= answered <= {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
    words = {"PLAIN": "Invalid username or password", "OAUTHBEARER": "invalid_token"}
    if mechanism != "OAUTHBEARER" or client not in TAKE_REFUSALS_FOR_SUCCESS:
        assert words.get(mechanism, "invalid credentials with SASL mechanism") in str(refused.value)
