"""What a connection has said of who it is. Pure: a machine that is handed what came, and the time.

Kafka's order of events: a handshake names the mechanism, its messages follow, and with them it is done; if the session
ends at some time, the client does all of it again before (KIP-368), by the same mechanism and for the same user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Protocol

import msgspec

from chronik.limits import LOGIN_BYTES_MAX, UNAUTHENTICATED_FRAME_BYTES_MAX
from chronik.principals import USER, Principal
from chronik.security.sasl.outcomes import OAUTHBEARER, Challenge, Failure, Outcome, Success
from chronik.shown import shortened

REAUTHENTICATION_SECONDS_MIN: Final = 1.0
"""A client may say again who it is once in this time, as in Kafka."""

USER_CHARACTERS_SHOWN_MAX: Final = 100


class ServerMachine(Protocol):
    def step(self, data: bytes) -> Outcome: ...


class Handshake(Enum):
    """What becomes of one."""

    TAKEN = auto()
    UNSUPPORTED = auto()
    """The mechanism is not one of those that are enabled: the connection ends."""
    OUT_OF_PLACE = auto()
    """Nothing changes."""


class Answer(msgspec.Struct, frozen=True):
    """What a client is told."""

    data: bytes = b""
    error: str | None = None
    """With one its connection ends."""
    lifetime_ms: int = 0
    why: str = ""
    """Why the credentials were rejected, for the log; empty if they were not."""

    @property
    def is_refusal(self) -> bool:
        """Whether it rejects the client's credentials, with an error or with a challenge."""
        return self.error is not None or bool(self.why)


class Session:
    def __init__(
        self,
        mechanisms: Callable[[], Sequence[str]],
        begin: Callable[[str], ServerMachine],
        lifetime_ms_max: Callable[[str], int],
    ) -> None:
        """`begin` makes the machine of a mechanism; `lifetime_ms_max` says how long who came by it may stay, 0 for
        ever."""
        self._mechanisms = mechanisms
        self._begin = begin
        self._lifetime_ms_max = lifetime_ms_max
        self._machine: ServerMachine | None = None
        self._mechanism = ""
        self._other_mechanism = ""  # which it wants to go on with, and may not
        self._began_again_at: float | None = None
        self.principal: Principal | None = None
        self.expires_at: float | None = None
        self.expects_tokens = False
        """Whether what comes next are bare messages of the mechanism, as after a handshake of version 0."""

    @property
    def mechanisms(self) -> list[str]:
        return list(self._mechanisms())

    @property
    def mechanism(self) -> str:
        return self._mechanism

    @property
    def is_let_in(self) -> bool:
        return self.principal is not None

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and now > self.expires_at

    def handshake(self, mechanism: str, version: int, now: float) -> Handshake:
        if self._machine is not None or (self.is_let_in and not self._may_begin_again(now)):
            return Handshake.OUT_OF_PLACE
        if mechanism not in self._mechanisms():
            return Handshake.UNSUPPORTED
        if self.is_let_in:
            self._began_again_at = now
            self._other_mechanism = mechanism if mechanism != self._mechanism else ""
        self._mechanism = self._mechanism or mechanism
        self._machine = self._begin(mechanism)
        self.expects_tokens = version == 0
        return Handshake.TAKEN

    def _may_begin_again(self, now: float) -> bool:
        before = self._began_again_at
        return self.expires_at is not None and (before is None or now - before >= REAUTHENTICATION_SECONDS_MIN)

    @property
    def machine(self) -> ServerMachine | None:
        """The machine that takes the next message; None when none is due."""
        return self._machine

    def step(self, data: bytes) -> Outcome:
        if self._machine is None:
            return Failure("no message is due", "SaslAuthenticate request received after successful authentication")
        if self._other_mechanism:
            told = (
                f"SASL mechanism '{self._other_mechanism}' requested by client is not supported for re-authentication "
                f"of mechanism '{self._mechanism}'"
            )
            return Failure("it changes its mechanism", told)
        if len(data) > (UNAUTHENTICATED_FRAME_BYTES_MAX if self._mechanism == OAUTHBEARER else LOGIN_BYTES_MAX):
            return Failure(f"a message of {len(data)} bytes, which none is")  # also of who is let in, and comes again
        return self._machine.step(data)

    def settle(self, outcome: Outcome, now: float, now_ms: int) -> Answer:
        """Takes what came of a message, with the time on the node's clock and on the wall."""
        if isinstance(outcome, Challenge):
            return Answer(outcome.data, why=self._why(outcome.refusal) if outcome.refusal else "")
        if isinstance(outcome, Success):
            return self._let_in(outcome, now, now_ms)
        assert isinstance(outcome, Failure)
        return self._refused(outcome)

    def _let_in(self, success: Success, now: float, now_ms: int) -> Answer:
        principal = Principal(USER, success.user)
        if self.principal not in (None, principal):
            was = self.principal
            told = "Cannot change principals during re-authentication from {}.{}: {}.{}".format(*was, *principal)
            return self._refused(Failure("it changes its name", told, success.user))
        if success.expires_ms is not None and success.expires_ms <= now_ms:
            return self._refused(Failure("what it has shown has expired", user=success.user))
        lifetimes = [] if success.expires_ms is None else [success.expires_ms - now_ms]
        longest = self._lifetime_ms_max(self._mechanism)
        lifetime_ms = min([*lifetimes, longest] if longest > 0 else lifetimes, default=0)
        self.principal = principal
        self.expires_at = now + lifetime_ms / 1000 if lifetime_ms else None
        self._machine = None
        self.expects_tokens = False
        return Answer(success.data, lifetime_ms=lifetime_ms)

    def _refused(self, failure: Failure) -> Answer:
        told = failure.told or (
            f"Authentication failed during {self._phase} due to invalid credentials "
            f"with SASL mechanism {self._mechanism}"
        )
        return Answer(error=told, why=self._why(failure.why, failure.user))

    @property
    def _phase(self) -> str:
        return "re-authentication" if self.is_let_in else "authentication"

    def _why(self, why: str, user: str = "") -> str:
        who = f" as {shortened(repr(user), USER_CHARACTERS_SHOWN_MAX)}" if user else ""
        return f"{self._phase} by {self._mechanism or 'SASL'}{who} failed: {why}"
