"""The login of a client: SaslHandshake, then as many SaslAuthenticate as the mechanism takes."""

from __future__ import annotations

import secrets
from typing import Final, Protocol, TypeVar

from chronik.client.access.settings import ClientSecurity
from chronik.client.errors import ConnectionLost, LoginRefused
from chronik.config import Address
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from chronik.protocol.schema import Request, Response
from chronik.security.sasl.oauthbearer import OAuthBearerClient
from chronik.security.sasl.outcomes import OAUTHBEARER, PLAIN, Challenge, Derive, Failure, Outcome, Success
from chronik.security.sasl.plain import PlainClient
from chronik.security.sasl.scram import ScramClient
from chronik.security.sasl.scram_keys import BY_NAME, salted

R = TypeVar("R", bound=Response)

Machine = PlainClient | ScramClient | OAuthBearerClient

NONCE_BYTES: Final = 24


class Ask(Protocol):
    def __call__(self, request: Request, response_type: type[R]) -> R: ...


def log_in(security: ClientSecurity, address: Address, ask: Ask) -> float:
    """Returns for how many seconds it holds. Raises LoginRefused."""
    try:
        handshake = ask(SaslHandshakeRequest(mechanism=security.mechanism), SaslHandshakeResponse)
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms) or "none: that port asks for no login"
            raise LoginRefused(f"{address} does not take {security.mechanism}; it takes {offered}")
        return _converse(_machine(security), security, address, ask)
    except ConnectionLost as error:
        raise LoginRefused(f"{address} hung up at the login of {security.who}: {error}") from error


def _machine(security: ClientSecurity) -> Machine:
    if security.mechanism == PLAIN:
        return PlainClient(security.username, security.password)
    if security.mechanism == OAUTHBEARER:
        return OAuthBearerClient(security.token())
    scram = BY_NAME[security.mechanism]
    return ScramClient(scram, security.username, security.password, secrets.token_urlsafe(NONCE_BYTES))


def _converse(machine: Machine, security: ClientSecurity, address: Address, ask: Ask) -> float:
    outcome: Outcome = Challenge(machine.first())
    lifetime_ms = 0
    while not isinstance(outcome, Success):
        if isinstance(outcome, Derive) and isinstance(machine, ScramClient):
            outcome = machine.derived(salted(outcome.password, outcome.salt, outcome.iterations, outcome.digest))
        elif isinstance(outcome, Challenge):
            answer = ask(SaslAuthenticateRequest(auth_bytes=outcome.data), SaslAuthenticateResponse)
            if answer.error_code:
                why = answer.error_message or ErrorCode(answer.error_code).message
                raise LoginRefused(f"{address} refused the login of {security.who} by {security.mechanism}: {why}")
            lifetime_ms = answer.session_lifetime_ms
            outcome = machine.step(bytes(answer.auth_bytes))
        else:
            why = outcome.why if isinstance(outcome, Failure) else f"{security.mechanism} has no such turn"
            raise LoginRefused(f"{address} is not to be trusted with the login of {security.who}: {why}")
    return lifetime_ms / 1000 if lifetime_ms > 0 else float("inf")
