"""Who is alive: pure, told the time. Runs where the Raft leader is; a new one grants every broker a full session.

Broker and controller judge by the same words. A broker serves for one session from when it sent the last heartbeat
that was answered; the controller waits for one session from when it arrived, which is later. And a broker that is
heard, but does not hear, says so with its heartbeats.

Silence takes a session to be believed: a broker may be slow, paused or cut off, and all of its partitions move. A port
that refuses connections is a better sign: no process listens there. Why it is safe to act on it early is told in
docs/decisions/2026-11-15-early-fencing.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Broker

GONE_SECONDS: Final = 0.5
"""How long a port must have refused, and its broker been silent: several dials in a row. One that is only restarting
its listener is back by then, and a client that meets a dead leader has not asked twice yet."""

DEAF_SESSIONS: Final = 2
"""For so long a broker may be heard without having heard an answer. Longer than a session: on a slow line the word that
an answer has arrived is itself on its way for most of one."""

LEADER_GONE_SECONDS_MAX: Final = 2.0
"""A leader that has gone is succeeded within that time."""

Life = tuple[int, int]
"""A broker and its epoch."""


class Liveness:
    def __init__(self, session_seconds: float) -> None:
        self._session_seconds = session_seconds
        self._begun_at = float("-inf")
        self._predecessor = NO_LEADER
        self._heard: dict[Life, float] = {}
        self._granted: dict[Life, float] = {}
        """From when on silence counts: seen for the first time, by registration or by a new leader."""
        self._present: set[Life] = set()
        """Those that were there at the last look, and alive."""
        self._answered: dict[Life, float] = {}
        """When the last heartbeat came whose answer is known to have arrived; before there is one, when the first was
        heard."""
        self._dismissed: set[Life] = set()
        """Those that were to go offline by our own word."""
        self._left: dict[Life, float] = {}
        """When they were seen to have said goodbye."""

    def begin(self, now: float = float("-inf"), predecessor: int = NO_LEADER) -> None:
        """This node leads from now on: what was heard before is old. Others may have heard more, up to now: so it takes
        the time of a refusal until anybody is gone, but for the leader before, if that is why there is a new one."""
        self._begun_at = now
        self._predecessor = predecessor
        self._heard.clear()
        self._granted.clear()
        self._present.clear()
        self._answered.clear()
        self._dismissed.clear()
        self._left.clear()

    def heard(self, broker_id: int, broker_epoch: int, now: float, answered_at: float | None = None) -> None:
        """A heartbeat came, which says when the last one came whose answer has arrived; None if it does not say."""
        life = broker_id, broker_epoch
        if now - self._left.get(life, float("-inf")) <= self._session_seconds:
            return  # it was sent before the farewell
        self._heard[life] = max(now, self._heard.get(life, now))
        if answered_at is None:
            self._answered[life] = now
        else:
            self._answered[life] = min(now, max(answered_at, self._answered.get(life, now)))

    def changes(
        self, brokers: Mapping[int, Broker], now: float, gone_seconds: Mapping[int, float]
    ) -> list[UpdateBrokerStatus]:
        """Brokers that fell silent go offline, those that speak again come back; maintenance stays until lifted.

        `gone_seconds` says for how long a broker's port has refused; 0, or nothing, when it does not.
        """
        lives = {(broker.id, broker.epoch): broker for broker in brokers.values()}
        self._heard = {life: at for life, at in self._heard.items() if life in lives}
        self._granted = {life: at for life, at in self._granted.items() if life in lives}
        self._answered = {life: at for life, at in self._answered.items() if life in lives}
        self._left = {life: at for life, at in self._left.items() if life in lives}
        self._dismissed &= lives.keys()
        wanted, present = [], set()
        for life, broker in sorted(lives.items()):
            if not broker.fenced:
                self._granted.setdefault(life, now)
            if self._has_left(life, broker):
                self._forget(life)
                self._left[life] = now
            elif self._is_gone(life, now, gone_seconds.get(broker.id, 0.0)):
                self._forget(life)  # it has to speak before it counts as alive again
            is_alive = self._is_alive(life, now)
            if is_alive and broker.status is not BrokerStatus.OFFLINE:
                present.add(life)
            status = BrokerStatus.ONLINE if is_alive else BrokerStatus.OFFLINE
            if broker.status is not status and not (is_alive and broker.status is BrokerStatus.MAINTENANCE):
                wanted.append(UpdateBrokerStatus(broker.id, status, broker.epoch))
                if is_alive:
                    self._dismissed.discard(life)  # when it is offline again, that may be its own word
                else:
                    self._dismissed.add(life)
        self._present = present
        return wanted

    def _has_left(self, life: Life, broker: Broker) -> bool:
        """Since the last look, with a farewell: a moment ago it was heard, and that must not bring it back, nor must a
        heartbeat that was under way. One that went by our own word is offline until it speaks."""
        has_gone = life in self._present and broker.status is BrokerStatus.OFFLINE
        return has_gone and life not in self._dismissed

    def _is_alive(self, life: Life, now: float) -> bool:
        is_deaf = now - self._answered.get(life, now) > DEAF_SESSIONS * self._session_seconds
        return now - self._last_sign(life) <= self._session_seconds and not is_deaf

    def _is_gone(self, life: Life, now: float, gone_seconds: float) -> bool:
        is_why_we_lead = life[0] == self._predecessor and gone_seconds < LEADER_GONE_SECONDS_MAX
        begun_at = float("-inf") if is_why_we_lead else self._begun_at
        silent_seconds = now - max(self._heard.get(life, float("-inf")), begun_at)
        return gone_seconds >= GONE_SECONDS and silent_seconds >= GONE_SECONDS

    def _forget(self, life: Life) -> None:
        self._heard.pop(life, None)
        self._granted.pop(life, None)

    def _last_sign(self, life: Life) -> float:
        return max(self._heard.get(life, float("-inf")), self._granted.get(life, float("-inf")))
