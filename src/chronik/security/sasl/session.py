"""SASL session of a connection: a state machine that receives messages and the time as arguments. No I/O.

As in Kafka, a handshake selects the mechanism, and its messages follow. Before a session with a limited lifetime
expires, the client must re-authenticate with the same mechanism and user (KIP-368).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Protocol

import msgspec

from chronik.escaping import truncate_text
from chronik.limits import SASL_MESSAGE_BYTES_MAX, UNAUTHENTICATED_FRAME_BYTES_MAX
from chronik.principals import USER, Principal
from chronik.security.sasl.outcomes import OAUTHBEARER, SaslChallenge, SaslFailure, SaslOutcome, SaslSuccess

REAUTHENTICATION_SECONDS_MIN: Final = 1.0
"""Minimum seconds between re-authentications of a connection, as in Kafka."""

LOGGED_USER_CHARACTERS_MAX: Final = 100


class MechanismServer(Protocol):
    """The interface of a SASL mechanism's server-side state machine."""

    def step(self, data: bytes) -> SaslOutcome: ...


class HandshakeResult(Enum):
    """The result of a SaslHandshake request, with which a client selects the SASL mechanism."""

    ACCEPTED = auto()
    UNSUPPORTED = auto()
    """The mechanism is not enabled, and the connection is closed."""
    UNEXPECTED = auto()
    """The handshake is not allowed in the current state, which does not change."""


class SaslResponse(msgspec.Struct, frozen=True):
    """The response to a SASL message."""

    data: bytes = b""
    error: str | None = None
    """Error message for the client if the authentication failed; the connection is closed after the response."""
    lifetime_ms: int = 0
    rejection_reason: str = ""
    """Reason for rejecting the credentials, for the log; empty if they are not rejected."""

    @property
    def is_rejection(self) -> bool:
        """Return whether the client's credentials are rejected, with an error or a challenge."""
        return self.error is not None or bool(self.rejection_reason)


class SaslSession:
    """The state of a connection's SASL authentication."""

    def __init__(
        self,
        mechanisms: Callable[[], Sequence[str]],
        begin: Callable[[str], MechanismServer],
        lifetime_ms_max: Callable[[str], int],
    ) -> None:
        """Create the session of a new, unauthenticated connection.

        Args:
            mechanisms: Returns the enabled mechanisms.
            begin: Creates the state machine of a mechanism.
            lifetime_ms_max: Returns the maximum session lifetime for a mechanism; 0 for no limit.
        """
        self._mechanisms = mechanisms
        self._begin = begin
        self._lifetime_ms_max = lifetime_ms_max
        self._machine: MechanismServer | None = None
        self._mechanism = ""
        self._other_mechanism = ""  # a different mechanism that the client requested for re-authentication
        self._reauthenticated_at: float | None = None
        self.principal: Principal | None = None
        self.expires_at: float | None = None
        self.expects_bare_messages = False
        """Whether the next SASL messages have no Kafka headers, as after a version 0 handshake."""

    @property
    def mechanisms(self) -> list[str]:
        """Return the enabled mechanisms."""
        return list(self._mechanisms())

    @property
    def mechanism(self) -> str:
        """Return the mechanism of the session; empty before the handshake."""
        return self._mechanism

    @property
    def is_authenticated(self) -> bool:
        """Return whether the client has authenticated."""
        return self.principal is not None

    def is_expired(self, now: float) -> bool:
        """Return whether the client's authentication has expired, so that it must re-authenticate."""
        return self.expires_at is not None and now > self.expires_at

    def handshake(self, mechanism: str, version: int, now: float) -> HandshakeResult:
        """Handle a SaslHandshake request, with which the client selects the SASL mechanism."""
        if self._machine is not None or (self.is_authenticated and not self._may_reauthenticate(now)):
            return HandshakeResult.UNEXPECTED
        if mechanism not in self._mechanisms():
            return HandshakeResult.UNSUPPORTED
        if self.is_authenticated:
            self._reauthenticated_at = now
            self._other_mechanism = mechanism if mechanism != self._mechanism else ""
        self._mechanism = self._mechanism or mechanism
        self._machine = self._begin(mechanism)
        self.expects_bare_messages = version == 0
        return HandshakeResult.ACCEPTED

    def _may_reauthenticate(self, now: float) -> bool:
        before = self._reauthenticated_at
        return self.expires_at is not None and (before is None or now - before >= REAUTHENTICATION_SECONDS_MIN)

    @property
    def machine(self) -> MechanismServer | None:
        """Return the state machine that handles the client's next SASL message, or None if no message is expected."""
        return self._machine

    def step(self, data: bytes) -> SaslOutcome:
        """Pass a client's SASL message to the mechanism's state machine, and return the outcome."""
        if self._machine is None:
            return SaslFailure(
                "unexpected message", "SaslAuthenticate request received after successful authentication"
            )
        if self._other_mechanism:
            message = (
                f"SASL mechanism '{self._other_mechanism}' requested by client is not supported for re-authentication "
                f"of mechanism '{self._mechanism}'"
            )
            return SaslFailure("re-authentication with a different mechanism", message)
        if len(data) > (UNAUTHENTICATED_FRAME_BYTES_MAX if self._mechanism == OAUTHBEARER else SASL_MESSAGE_BYTES_MAX):
            return SaslFailure(f"message too large: {len(data)} bytes")  # applies to re-authentication, too
        return self._machine.step(data)

    def process_outcome(self, outcome: SaslOutcome, now: float, now_ms: int) -> SaslResponse:
        """Return the response for the outcome of a SASL message; `now` is monotonic, `now_ms` wall-clock time."""
        if isinstance(outcome, SaslChallenge):
            return SaslResponse(
                outcome.data,
                rejection_reason=self._describe_failure(outcome.rejection_reason) if outcome.rejection_reason else "",
            )
        if isinstance(outcome, SaslSuccess):
            return self._accept_client(outcome, now, now_ms)
        assert isinstance(outcome, SaslFailure)
        return self._reject_client(outcome)

    def _accept_client(self, success: SaslSuccess, now: float, now_ms: int) -> SaslResponse:
        principal = Principal(USER, success.user)
        if self.principal not in (None, principal):
            was = self.principal
            message = "Cannot change principals during re-authentication from {}.{}: {}.{}".format(*was, *principal)
            return self._reject_client(SaslFailure("re-authentication as a different user", message, success.user))
        if success.expires_ms is not None and success.expires_ms <= now_ms:
            return self._reject_client(SaslFailure("the credentials have expired", user=success.user))
        lifetimes = [] if success.expires_ms is None else [success.expires_ms - now_ms]
        longest = self._lifetime_ms_max(self._mechanism)
        lifetime_ms = min([*lifetimes, longest] if longest > 0 else lifetimes, default=0)
        self.principal = principal
        self.expires_at = now + lifetime_ms / 1000 if lifetime_ms else None
        self._machine = None
        self.expects_bare_messages = False
        return SaslResponse(success.data, lifetime_ms=lifetime_ms)

    def _reject_client(self, failure: SaslFailure) -> SaslResponse:
        message = failure.client_message or (
            f"Authentication failed during {self._phase} due to invalid credentials "
            f"with SASL mechanism {self._mechanism}"
        )
        return SaslResponse(error=message, rejection_reason=self._describe_failure(failure.reason, failure.user))

    @property
    def _phase(self) -> str:
        return "re-authentication" if self.is_authenticated else "authentication"

    def _describe_failure(self, why: str, user: str = "") -> str:
        who = f" as {truncate_text(repr(user), LOGGED_USER_CHARACTERS_MAX)}" if user else ""
        return f"{self._phase} with {self._mechanism or 'SASL'}{who} failed: {why}"
