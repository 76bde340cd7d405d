"""Liveness of the brokers by heartbeats, as tracked by the Raft leader.

A new leader grants every broker a full session, but fences a broker whose port refuses connections after 0.5 s.

Broker and controller use the same heartbeats. A broker serves for one session after it sent the last answered
heartbeat; the controller waits for one session after that heartbeat arrived, which is later. A broker that receives no
responses reports that in its heartbeats.

A broker is fenced after a session of silence: it may only be slow or paused, and fencing moves all of its partitions. A
port that refuses connections proves that the process has stopped. docs/internals/decisions/2026-11-15-early-fencing.md
explains why it is safe to fence the broker early in that case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Broker

DOWN_SECONDS: Final = 0.5
"""Time without heartbeats and with refused connections after which a broker is fenced before its session expires.

Long enough for several connection attempts and for a listener to restart.
"""

UNANSWERED_SESSIONS_MAX: Final = 2
"""Maximum time that a broker may send heartbeats without receiving responses, in session timeouts.

More than one, because the confirmation of a heartbeat can take most of a session on a slow network.
"""

LEADER_DOWN_SECONDS_MAX: Final = 2.0
"""Maximum time in seconds that the election of a new leader takes after the leader has stopped."""

BrokerEpoch = tuple[int, int]
"""A broker id and epoch."""


class BrokerLiveness:
    """The controller's record of broker heartbeats, which determines which brokers are alive."""

    def __init__(self, session_seconds: float) -> None:
        self._session_seconds = session_seconds
        self._started_at = float("-inf")
        self._predecessor = NO_LEADER
        self._heard: dict[BrokerEpoch, float] = {}
        self._grace_start: dict[BrokerEpoch, float] = {}
        """Start of each broker's first session: its registration, or the start of this leadership."""
        self._present: set[BrokerEpoch] = set()
        """Brokers that were alive at the last check."""
        self._answered: dict[BrokerEpoch, float] = {}
        """Arrival time of each broker's last heartbeat whose response was received, or of its first heartbeat."""
        self._fenced: set[BrokerEpoch] = set()
        """Brokers that this controller has decided to fence."""
        self._shut_down_at: dict[BrokerEpoch, float] = {}
        """Time at which each broker's shutdown was detected."""

    def reset(self, now: float = float("-inf"), predecessor: int = NO_LEADER) -> None:
        """Forget all heartbeats, as when this node becomes the Raft leader.

        The previous leader may have received heartbeats until now, so no broker is fenced early before DOWN_SECONDS
        have passed, except the previous leader itself if its failure caused this election.
        """
        self._started_at = now
        self._predecessor = predecessor
        self._heard.clear()
        self._grace_start.clear()
        self._present.clear()
        self._answered.clear()
        self._fenced.clear()
        self._shut_down_at.clear()

    def record_heartbeat(self, broker_id: int, broker_epoch: int, now: float, answered_at: float | None = None) -> None:
        """Record a broker's heartbeat that arrived at `now`.

        `answered_at` is the arrival time of the last heartbeat whose response the broker received, or None if unknown.
        """
        broker_and_epoch = broker_id, broker_epoch
        if now - self._shut_down_at.get(broker_and_epoch, float("-inf")) <= self._session_seconds:
            return  # it was sent before the shutdown
        self._heard[broker_and_epoch] = max(now, self._heard.get(broker_and_epoch, now))
        if answered_at is None:
            self._answered[broker_and_epoch] = now
        else:
            self._answered[broker_and_epoch] = min(now, max(answered_at, self._answered.get(broker_and_epoch, now)))

    def status_changes(
        self, brokers: Mapping[int, Broker], now: float, gone_seconds: Mapping[int, float]
    ) -> list[UpdateBrokerStatus]:
        """Return the broker status updates: OFFLINE for brokers without heartbeats, ONLINE when heartbeats resume.

        Brokers in maintenance keep that status. `gone_seconds` contains the time for which each broker's port has
        refused connections.
        """
        broker_epochs = {(broker.id, broker.epoch): broker for broker in brokers.values()}
        self._heard = {
            broker_and_epoch: at for broker_and_epoch, at in self._heard.items() if broker_and_epoch in broker_epochs
        }
        self._grace_start = {
            broker_and_epoch: at
            for broker_and_epoch, at in self._grace_start.items()
            if broker_and_epoch in broker_epochs
        }
        self._answered = {
            broker_and_epoch: at for broker_and_epoch, at in self._answered.items() if broker_and_epoch in broker_epochs
        }
        self._shut_down_at = {
            broker_and_epoch: at
            for broker_and_epoch, at in self._shut_down_at.items()
            if broker_and_epoch in broker_epochs
        }
        self._fenced &= broker_epochs.keys()
        updates, present = [], set()
        for broker_and_epoch, broker in sorted(broker_epochs.items()):
            if not broker.is_fenced:
                self._grace_start.setdefault(broker_and_epoch, now)
            if self._has_shut_down(broker_and_epoch, broker):
                self._forget_broker(broker_and_epoch)
                self._shut_down_at[broker_and_epoch] = now
            elif self._is_broker_down(broker_and_epoch, now, gone_seconds.get(broker.id, 0.0)):
                self._forget_broker(broker_and_epoch)  # the broker must send a heartbeat to count as alive again
            is_alive = self._is_alive(broker_and_epoch, now)
            if is_alive and broker.status is not BrokerStatus.OFFLINE:
                present.add(broker_and_epoch)
            status = BrokerStatus.ONLINE if is_alive else BrokerStatus.OFFLINE
            if broker.status is not status and not (is_alive and broker.status is BrokerStatus.MAINTENANCE):
                updates.append(UpdateBrokerStatus(broker.id, status, broker.epoch))
                if is_alive:
                    self._fenced.discard(broker_and_epoch)  # if it goes offline again, it may be its own shutdown
                else:
                    self._fenced.add(broker_and_epoch)
        self._present = present
        return updates

    def _has_shut_down(self, broker_and_epoch: BrokerEpoch, broker: Broker) -> bool:
        """Return whether the broker has gone offline by its own shutdown since the last check.

        A recent or delayed heartbeat must not bring it back. A broker that this controller fenced does not count.
        """
        went_offline = broker_and_epoch in self._present and broker.status is BrokerStatus.OFFLINE
        return went_offline and broker_and_epoch not in self._fenced

    def _is_alive(self, broker_and_epoch: BrokerEpoch, now: float) -> bool:
        lacks_responses = (
            now - self._answered.get(broker_and_epoch, now) > UNANSWERED_SESSIONS_MAX * self._session_seconds
        )
        return now - self._get_last_contact(broker_and_epoch) <= self._session_seconds and not lacks_responses

    def _is_broker_down(self, broker_and_epoch: BrokerEpoch, now: float, gone_seconds: float) -> bool:
        caused_election = broker_and_epoch[0] == self._predecessor and gone_seconds < LEADER_DOWN_SECONDS_MAX
        started_at = float("-inf") if caused_election else self._started_at
        silent_seconds = now - max(self._heard.get(broker_and_epoch, float("-inf")), started_at)
        return gone_seconds >= DOWN_SECONDS and silent_seconds >= DOWN_SECONDS

    def _forget_broker(self, broker_and_epoch: BrokerEpoch) -> None:
        self._heard.pop(broker_and_epoch, None)
        self._grace_start.pop(broker_and_epoch, None)

    def _get_last_contact(self, broker_and_epoch: BrokerEpoch) -> float:
        return max(
            self._heard.get(broker_and_epoch, float("-inf")), self._grace_start.get(broker_and_epoch, float("-inf"))
        )
