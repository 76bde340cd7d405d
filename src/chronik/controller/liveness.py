"""Which brokers are alive. Pure: the caller hands in the time. It runs on the Raft leader; a new one grants every
broker a full session.

Broker and controller judge by the same heartbeats. A broker serves for one session from when it sent the last heartbeat
that was answered; the controller waits for one session from when that arrived, which is later. And a broker that is
heard, but gets no answers, says so with its heartbeats.

Only a session of silence counts: a broker may be slow, paused or cut off, and fencing moves all of its partitions. A
port that refuses connections is a better sign: no process listens there. Why it is safe to act on it early is explained
in docs/decisions/2026-11-15-early-fencing.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Broker

GONE_SECONDS: Final = 0.5
"""How long a port must have refused, and its broker been silent: several dials in a row. A broker that only restarts
its listener is back by then, and a client that meets a dead leader has not asked twice yet."""

DEAF_SESSIONS: Final = 2
"""How long a broker may be heard without having got an answer. Longer than a session: on a slow line the news that an
answer has arrived is itself under way for most of a session."""

LEADER_GONE_SECONDS_MAX: Final = 2.0
"""A leader that has gone is succeeded within this time."""

Life = tuple[int, int]
"""A broker and its epoch."""


class Liveness:
    def __init__(self, session_seconds: float) -> None:
        self._session_seconds = session_seconds
        self._begun_at = float("-inf")
        self._predecessor = NO_LEADER
        self._heard: dict[Life, float] = {}
        self._granted: dict[Life, float] = {}
        """When silence begins to count: when a broker was first seen, by its registration or by a new leader."""
        self._present: set[Life] = set()
        """The brokers that were alive at the last look."""
        self._answered: dict[Life, float] = {}
        """When the last heartbeat came whose answer is known to have arrived; before that, when the first one came."""
        self._dismissed: set[Life] = set()
        """The brokers that this controller itself wanted offline."""
        self._left: dict[Life, float] = {}
        """When brokers were seen to have said goodbye."""

    def begin(self, now: float = float("-inf"), predecessor: int = NO_LEADER) -> None:
        """Forgets what was heard before: this node leads from now on. The old leader may have heard more until now, so
        nobody counts as gone before the time of a refusal has passed; except that leader, if it is why we lead."""
        self._begun_at = now
        self._predecessor = predecessor
        self._heard.clear()
        self._granted.clear()
        self._present.clear()
        self._answered.clear()
        self._dismissed.clear()
        self._left.clear()

    def heard(self, broker_id: int, broker_epoch: int, now: float, answered_at: float | None = None) -> None:
        """Notes a heartbeat, which says when the last one came whose answer has arrived; None if it does not say."""
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
        """Returns what changes: silent brokers go offline, those that speak again come back; maintenance stays.

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
        """Whether it has said goodbye since the last look: that it was heard a moment ago must not bring it back, nor
        must a heartbeat that was under way. One that this controller fenced is offline until it speaks."""
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
