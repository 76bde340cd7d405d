"""A broker with a SASL listener, its users, and raw clients that authenticate."""

from __future__ import annotations

from typing import Any

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from chronik.security.sasl.oauthbearer import OAuthBearerClient
from chronik.security.sasl.outcomes import HashPassword, SaslChallenge
from chronik.security.sasl.plain import PlainClient
from chronik.security.sasl.scram import ScramClient
from chronik.security.sasl.scram_keys import MECHANISMS_BY_NAME, salt_password
from chronik.testing import Broker
from chronik.testing.ports import ReservedPorts
from tests.raw import RawClient

HOST = "127.0.0.1"
ALL_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"

ClientMachine = PlainClient | ScramClient | OAuthBearerClient


class SaslBroker(Broker):
    """A broker whose main listener requires SASL; `open_bootstrap` is a listener without authentication."""

    def __init__(self, *args: Any, **broker: Any) -> None:
        self._reserved = ReservedPorts(1)
        (port,) = self._reserved.ports
        self.open_bootstrap = f"{HOST}:{port}"
        listeners = f"SASL_PLAINTEXT://{HOST}:0,PLAINTEXT://{self.open_bootstrap}"
        try:
            super().__init__(*args, broker={"listeners": listeners, "sasl.enabled.mechanisms": ALL_MECHANISMS} | broker)
        except BaseException:
            self._reserved.release()
            raise

    def start(self) -> Broker:
        try:
            return super().start()
        except BaseException:
            self._reserved.release()
            raise

    def close(self) -> None:
        super().close()
        self._reserved.release()

    def add_user(self, name: str, password: str) -> None:
        with RawClient(self.open_bootstrap) as client:
            put_user(client, name, password)


def put_user(client: RawClient, name: str, password: str) -> None:
    credentials = [
        ScramCredentialUpsertion(
            name=name,
            mechanism=scram.number,
            iterations=4096,
            salt=b"salt of " + name.encode(),
            salted_password=salt_password(password.encode(), b"salt of " + name.encode(), 4096, scram.digest),
        )
        for scram in MECHANISMS_BY_NAME.values()
    ]
    request = AlterUserScramCredentialsRequest(upsertions=credentials)
    answer = client.request(request, 0, AlterUserScramCredentialsResponse)
    assert [each.error_code for each in answer.results] == [ErrorCode.NONE], answer


def client_machine(mechanism: str, user: str, password: str) -> ClientMachine:
    if mechanism == "PLAIN":
        return PlainClient(user, password)
    if mechanism == "OAUTHBEARER":
        return OAuthBearerClient(password)
    return ScramClient(MECHANISMS_BY_NAME[mechanism], user, password, "nonce-of-a-client")


def next_message(machine: ClientMachine, data: bytes) -> bytes | None:
    """Return the client's next message, or None if it has finished."""
    outcome = machine.step(data)
    if isinstance(outcome, HashPassword):
        assert isinstance(machine, ScramClient)
        outcome = machine.continue_with_hash(
            salt_password(outcome.password, outcome.salt, outcome.iterations, outcome.digest)
        )
    return outcome.data if isinstance(outcome, SaslChallenge) else None


def authenticate(
    client: RawClient, mechanism: str, user: str, password: str, version: int = 2
) -> SaslAuthenticateResponse:
    """Authenticate, and return the response to the last message, or the first error."""
    handshake = client.request(SaslHandshakeRequest(mechanism=mechanism), 1, SaslHandshakeResponse)
    assert handshake.error_code == ErrorCode.NONE, handshake
    machine = client_machine(mechanism, user, password)
    message: bytes | None = machine.initial_message()
    while True:
        assert message is not None
        answer = client.request(SaslAuthenticateRequest(auth_bytes=message), version, SaslAuthenticateResponse)
        if answer.error_code:
            return answer
        message = next_message(machine, bytes(answer.auth_bytes))
        if message is None:
            return answer


def authenticate_with_bare_messages(client: RawClient, mechanism: str, user: str, password: str) -> bytes | None:
    """Authenticate after a version 0 handshake, without Kafka headers; return None if the broker disconnects."""
    handshake = client.request(SaslHandshakeRequest(mechanism=mechanism), 0, SaslHandshakeResponse)
    assert handshake.error_code == ErrorCode.NONE
    machine = client_machine(mechanism, user, password)
    message: bytes | None = machine.initial_message()
    answer: bytes | None = b""
    while message is not None:
        client.send_frame(message)
        answer = client.read_frame()
        if answer is None:
            return None
        message = next_message(machine, answer)
    return answer
