"""Who is alive: pure, told the time. Runs where the Raft leader is; a new one grants every broker a full session."""

from __future__ import annotations

from collections.abc import Mapping

from chronik.metadata.commands import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.records import Broker


class Liveness:
    def __init__(self, session_seconds: float) -> None:
        self._session_seconds = session_seconds
        self._heard: dict[tuple[int, int], float] = {}  # by broker and epoch: one life of a broker

    def begin(self) -> None:
        """This node leads from now on: what was heard before is old."""
        self._heard.clear()

    def heard(self, broker_id: int, broker_epoch: int, now: float) -> None:
        self._heard[broker_id, broker_epoch] = now

    def changes(self, brokers: Mapping[int, Broker], now: float) -> list[UpdateBrokerStatus]:
        """Brokers that fell silent go offline, those that speak again come back; maintenance stays until lifted."""
        lives = {(broker.id, broker.epoch): broker for broker in brokers.values()}
        self._heard = {life: at for life, at in self._heard.items() if life in lives}
        wanted = []
        for life, broker in sorted(lives.items()):
            if not broker.fenced:
                self._heard.setdefault(life, now)  # seen for the first time, by registration or by a new leader
            is_alive = now - self._heard.get(life, float("-inf")) <= self._session_seconds
            status = BrokerStatus.ONLINE if is_alive else BrokerStatus.OFFLINE
            if broker.status is not status and not (is_alive and broker.status is BrokerStatus.MAINTENANCE):
                wanted.append(UpdateBrokerStatus(broker.id, status, broker.epoch))
        return wanted
