"""SASL authentication of a client: one SaslHandshake, then SaslAuthenticate until the mechanism is done."""

from __future__ import annotations

import secrets
from typing import Final, Protocol, TypeVar

from chronik.client.access.settings import ClientSecurity
from chronik.client.errors import ConnectionLost, LoginFailed
from chronik.config import Address
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from chronik.protocol.schema import Request, Response
from chronik.security.sasl.oauthbearer import OAuthBearerClient
from chronik.security.sasl.outcomes import (
    OAUTHBEARER,
    PLAIN,
    HashPassword,
    SaslChallenge,
    SaslFailure,
    SaslOutcome,
    SaslSuccess,
)
from chronik.security.sasl.plain import PlainClient
from chronik.security.sasl.scram import ScramClient
from chronik.security.sasl.scram_keys import MECHANISMS_BY_NAME, salt_password

R = TypeVar("R", bound=Response)

SaslMechanismClient = PlainClient | ScramClient | OAuthBearerClient

NONCE_BYTES: Final = 24


class SendRequest(Protocol):
    def __call__(self, request: Request, response_type: type[R]) -> R: ...


def authenticate_with_sasl(security: ClientSecurity, address: Address, ask: SendRequest) -> float:
    """Authenticate the connection with SASL and return the session lifetime in seconds.

    Raises:
        LoginFailed: If the broker rejects the credentials, or closes the connection, or cannot prove its identity.
    """
    try:
        handshake = ask(SaslHandshakeRequest(mechanism=security.mechanism), SaslHandshakeResponse)
        if handshake.error_code:
            supported = ", ".join(handshake.mechanisms) or "none; this listener does not use SASL"
            raise LoginFailed(f"{address} does not support SASL {security.mechanism}; supported: {supported}")
        return _exchange_messages(_create_mechanism(security), security, address, ask)
    except ConnectionLost as error:
        raise LoginFailed(f"{address} closed the connection during login of {security.login_name}: {error}") from error


def _create_mechanism(security: ClientSecurity) -> SaslMechanismClient:
    if security.mechanism == PLAIN:
        return PlainClient(security.username, security.password)
    if security.mechanism == OAUTHBEARER:
        return OAuthBearerClient(security.read_token())
    scram = MECHANISMS_BY_NAME[security.mechanism]
    return ScramClient(scram, security.username, security.password, secrets.token_urlsafe(NONCE_BYTES))


def _exchange_messages(
    mechanism: SaslMechanismClient, security: ClientSecurity, address: Address, ask: SendRequest
) -> float:
    outcome: SaslOutcome = SaslChallenge(mechanism.initial_message())
    lifetime_ms = 0
    while not isinstance(outcome, SaslSuccess):
        if isinstance(outcome, HashPassword) and isinstance(mechanism, ScramClient):
            outcome = mechanism.continue_with_hash(
                salt_password(outcome.password, outcome.salt, outcome.iterations, outcome.digest)
            )
        elif isinstance(outcome, SaslChallenge):
            response = ask(SaslAuthenticateRequest(auth_bytes=outcome.data), SaslAuthenticateResponse)
            if response.error_code:
                reason = response.error_message or ErrorCode(response.error_code).message
                raise LoginFailed(f"{address} rejected {security.mechanism} login of {security.login_name}: {reason}")
            lifetime_ms = response.session_lifetime_ms
            outcome = mechanism.step(bytes(response.auth_bytes))
        else:
            reason = outcome.reason if isinstance(outcome, SaslFailure) else f"unexpected {security.mechanism} message"
            raise LoginFailed(f"{address} could not prove its identity to {security.login_name}: {reason}")
    return lifetime_ms / 1000 if lifetime_ms > 0 else float("inf")
