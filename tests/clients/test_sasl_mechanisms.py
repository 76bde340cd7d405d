"""SASL with every client and mechanism, with and without TLS: valid and invalid credentials."""

from __future__ import annotations

import time
from itertools import product

import pytest

from tests.run_size import IS_LONG_RUN

from .client_catalog import SECURED_CLIENTS
from .client_process import ClientPool, CommandFailed
from .drivers.secured import COUNT, LOGIN_REJECTED
from .secured_broker import MECHANISMS, PASSWORD, MultiListenerBroker, write_and_check
from .token_issuer import TokenIssuer

pytestmark = pytest.mark.slow

ALL = list(product(["SASL", "SASL_TLS", "SASL_MUTUAL_TLS"], MECHANISMS))
REPRESENTATIVE = "SCRAM-SHA-512"
"""Represents all mechanisms in the short run on other listeners, because clients share the code."""
ACCEPTED_CASES = (
    ALL
    if IS_LONG_RUN
    else [
        (listener, mechanism) for listener, mechanism in ALL if "MUTUAL" not in listener or mechanism == REPRESENTATIVE
    ]
)
REJECTED_CASES = (
    ALL if IS_LONG_RUN else [("SASL", mechanism) for mechanism in MECHANISMS] + [("SASL_TLS", REPRESENTATIVE)]
)

REJECTION_SECONDS_MAX = 10.0
"""The limit for a rejection. No client waits for a timeout except kafka-python, whose driver sets it to 5 s."""

IGNORE_TOKEN_REJECTION = ("kafka-python", "aiokafka", "kafkajs")
"""Clients that treat a rejected token as success and send a request; Kafka and Chronik then close the connection."""


@pytest.mark.parametrize(("listener", "mechanism"), ACCEPTED_CASES)
@pytest.mark.parametrize("client", list(SECURED_CLIENTS))
def test_valid_credentials_are_accepted(
    guarded_broker: MultiListenerBroker,
    issuer: TokenIssuer,
    secured_clients: ClientPool,
    client: str,
    listener: str,
    mechanism: str,
) -> None:
    access = guarded_broker.access_settings(
        listener, mechanism, issuer.token_url() if mechanism == "OAUTHBEARER" else PASSWORD
    )
    assert write_and_check(secured_clients.get(client), access) == COUNT


@pytest.mark.parametrize(("listener", "mechanism"), REJECTED_CASES)
@pytest.mark.parametrize("client", list(SECURED_CLIENTS))
def test_invalid_credentials_are_rejected_immediately(
    guarded_broker: MultiListenerBroker,
    issuer: TokenIssuer,
    secured_clients: ClientPool,
    client: str,
    listener: str,
    mechanism: str,
) -> None:
    running = secured_clients.get(client)
    secret = issuer.token_url(aud="others") if mechanism == "OAUTHBEARER" else "wrong"
    started = time.time()
    with pytest.raises(CommandFailed) as raised:
        write_and_check(running, guarded_broker.access_settings(listener, mechanism, secret))
    assert time.time() - started < REJECTION_SECONDS_MAX
    assert raised.value.name == LOGIN_REJECTED
    rejected = {
        each.connection
        for each in guarded_broker.last_requests()
        if each.answered_at > started and each.api == "SaslAuthenticate"
    }
    handled_apis = {each.api for each in guarded_broker.last_requests() if each.connection in rejected}
    assert {"SaslAuthenticate"} <= handled_apis <= {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
    expected_messages = {"PLAIN": "Invalid username or password", "OAUTHBEARER": "invalid_token"}
    if mechanism != "OAUTHBEARER" or client not in IGNORE_TOKEN_REJECTION:
        assert expected_messages.get(mechanism, "invalid credentials with SASL mechanism") in str(raised.value)
