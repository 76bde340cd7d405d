"""Who is alive: pure, told the time. Runs where the Raft leader is; a new one grants every broker a full session.

Silence takes a session to be believed: a broker may be slow, paused or cut off, and all of its partitions move. A port
that refuses connections is a better sign: no process listens there. Why it is safe to act on it early is told in
docs/decisions/2026-11-15-early-fencing.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chronik.metadata.commands import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.records import Broker

GONE_SECONDS: Final = 0.5
"""How long a port must have refused, and its broker been silent: several dials in a row. One that is only restarting
its listener is back by then, and a client that meets a dead leader has not asked twice yet."""

Life = tuple[int, int]
"""A broker and its epoch."""


class Liveness:
    def __init__(self, session_seconds: float) -> None:
        self._session_seconds = session_seconds
        self._heard: dict[Life, float] = {}
        self._granted: dict[Life, float] = {}
        """From when on silence counts: seen for the first time, by registration or by a new leader."""
        self._present: set[Life] = set()
        """Those that were there at the last look, and alive."""

    def begin(self) -> None:
        """This node leads from now on: what was heard before is old."""
        self._heard.clear()
        self._granted.clear()
        self._present.clear()

    def heard(self, broker_id: int, broker_epoch: int, now: float) -> None:
        self._heard[broker_id, broker_epoch] = now

    def changes(
        self, brokers: Mapping[int, Broker], now: float, gone_seconds: Mapping[int, float]
    ) -> list[UpdateBrokerStatus]:
        """Brokers that fell silent go offline, those that speak again come back; maintenance stays until lifted.

        `gone_seconds` says for how long a broker's port has refused; 0, or nothing, when it does not.
        """
        lives = {(broker.id, broker.epoch): broker for broker in brokers.values()}
        self._heard = {life: at for life, at in self._heard.items() if life in lives}
        self._granted = {life: at for life, at in self._granted.items() if life in lives}
        wanted, present = [], set()
        for life, broker in sorted(lives.items()):
            if not broker.fenced:
                self._granted.setdefault(life, now)
            if self._has_left(life, broker) or self._is_gone(life, now, gone_seconds.get(broker.id, 0.0)):
                self._forget(life)  # it has to speak before it counts as alive again
            is_alive = now - self._last_sign(life) <= self._session_seconds
            if is_alive and broker.status is not BrokerStatus.OFFLINE:
                present.add(life)
            status = BrokerStatus.ONLINE if is_alive else BrokerStatus.OFFLINE
            if broker.status is not status and not (is_alive and broker.status is BrokerStatus.MAINTENANCE):
                wanted.append(UpdateBrokerStatus(broker.id, status, broker.epoch))
        self._present = present
        return wanted

    def _has_left(self, life: Life, broker: Broker) -> bool:
        """Since the last look, perhaps with a farewell: a moment ago it was heard, and that must not bring it back."""
        return life in self._present and broker.status is BrokerStatus.OFFLINE

    def _is_gone(self, life: Life, now: float, gone_seconds: float) -> bool:
        silent_seconds = now - self._heard.get(life, float("-inf"))
        return gone_seconds >= GONE_SECONDS and silent_seconds >= GONE_SECONDS

    def _forget(self, life: Life) -> None:
        self._heard.pop(life, None)
        self._granted.pop(life, None)

    def _last_sign(self, life: Life) -> float:
        return max(self._heard.get(life, float("-inf")), self._granted.get(life, float("-inf")))
