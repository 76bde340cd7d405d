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
from chronik.security.sasl.outcomes import Challenge, Derive
from chronik.security.sasl.plain import PlainClient
from chronik.security.sasl.scram import ScramClient
from chronik.security.sasl.scram_keys import BY_NAME, salted
from chronik.testing import Broker
from chronik.testing.ports import ReservedPorts
from tests.raw import RawClient

HOST = "127.0.0.1"
ALL = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"

ClientMachine = PlainClient | ScramClient | OAuthBearerClient


class AskingBroker(Broker):
    """A broker whose main listener requires SASL; `open_bootstrap` is a listener without authentication."""

    def __init__(self, *args: Any, **broker: Any) -> None:
        self._reserved = ReservedPorts(1)
        (port,) = self._reserved.ports
        self.open_bootstrap = f"{HOST}:{port}"
        listeners = f"SASL_PLAINTEXT://{HOST}:0,PLAINTEXT://{self.open_bootstrap}"
        try:
            super().__init__(*args, broker={"listeners": listeners, "sasl.enabled.mechanisms": ALL} | broker)
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
            salted_password=salted(password.encode(), b"salt of " + name.encode(), 4096, scram.digest),
        )
        for scram in BY_NAME.values()
    ]
    request = AlterUserScramCredentialsRequest(upsertions=credentials)
    answer = client.ask(request, 0, AlterUserScramCredentialsResponse)
    assert [each.error_code for each in answer.results] == [ErrorCode.NONE], answer


def machine_of(mechanism: str, user: str, password: str) -> ClientMachine:
    if mechanism == "PLAIN":
        return PlainClient(user, password)
    if mechanism == "OAUTHBEARER":
        return OAuthBearerClient(password)
    return ScramClient(BY_NAME[mechanism], user, password, "nonce-of-a-client")


def next_message(machine: ClientMachine, data: bytes) -> bytes | None:
    """Return the client's next message, or None if it has finished."""
    outcome = machine.step(data)
    if isinstance(outcome, Derive):
        assert isinstance(machine, ScramClient)
        outcome = machine.derived(salted(outcome.password, outcome.salt, outcome.iterations, outcome.digest))
    return outcome.data if isinstance(outcome, Challenge) else None


def authenticate(
    client: RawClient, mechanism: str, user: str, password: str, version: int = 2
) -> SaslAuthenticateResponse:
    """Authenticate, and return the response to the last message, or the first error."""
    handshake = client.ask(SaslHandshakeRequest(mechanism=mechanism), 1, SaslHandshakeResponse)
    assert handshake.error_code == ErrorCode.NONE, handshake
    machine = machine_of(mechanism, user, password)
    message: bytes | None = machine.first()
    while True:
        assert message is not None
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=message), version, SaslAuthenticateResponse)
        if answer.error_code:
            return answer
        message = next_message(machine, bytes(answer.auth_bytes))
        if message is None:
            return answer


def authenticate_barely(client: RawClient, mechanism: str, user: str, password: str) -> bytes | None:
    """Authenticate after a version 0 handshake, without Kafka headers; return None if the broker disconnects."""
    handshake = client.ask(SaslHandshakeRequest(mechanism=mechanism), 0, SaslHandshakeResponse)
    assert handshake.error_code == ErrorCode.NONE
    machine = machine_of(mechanism, user, password)
    message: bytes | None = machine.first()
    answer: bytes | None = b""
    while message is not None:
        client.send_frame(message)
        answer = client.read_frame()
        if answer is None:
            return None
        message = next_message(machine, answer)
    return answer
