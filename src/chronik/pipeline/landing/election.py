"""Election of the active driver among drivers that stand by for each other, with a consumer group.

All drivers of a pipeline with the same tables and topics are members of the group `<pipeline>-drivers`. The leader of
the group makes one of them active: the one that is active already, else the one that has waited longest. When the
active driver leaves or its session expires, another one takes over.

The election only avoids needless work. A driver that was paused may still be landing when its successor starts:
commits are conditional on the table's next offsets, so each record lands once in any case.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.client.membership import GroupMembership
from chronik.pipeline import CLIENT_ID
from chronik.protocol.errors import KafkaError

logger = logging.getLogger("chronik.pipeline")

PROTOCOL_TYPE: Final = "chronik-pipeline"
PROTOCOL: Final = "active-standby"
GROUP_SUFFIX: Final = "-drivers"

SESSION_SECONDS: Final = 10.0
"""Time without heartbeats after which a driver loses its membership, and a standby driver takes over."""

HEARTBEAT_SECONDS: Final = 2.0
REBALANCE_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
REQUEST_SECONDS_MAX: Final = 5.0
STOP_SECONDS_MAX: Final = 5.0

ACTIVE: Final = b"active"
STANDBY: Final = b"standby"


class DriverMember(msgspec.Struct, frozen=True):
    """The metadata of a driver in the group. New fields need defaults."""

    selection: str
    """The tables and topics of the driver. Only drivers with the same ones stand by for each other."""
    is_active: bool = False
    started_ms: int = 0
    host: str = ""
    pid: int = 0


def describe_selection(table_root: str, topics: Sequence[str] | None) -> str:
    """Return a text that is equal for drivers with the same tables and topics."""
    return f"{table_root} {'*' if topics is None else ','.join(sorted(topics))}"


def assign_roles(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """Make one driver of each selection active: the active one, else the one that started first."""
    decoded: dict[str, DriverMember] = {}
    for member_id, metadata in members.items():
        try:
            decoded[member_id] = msgspec.json.decode(metadata, type=DriverMember)
        except msgspec.DecodeError:
            logger.warning("group member %s is not a driver of a pipeline; it stays inactive", member_id)
    roles = dict.fromkeys(members, STANDBY)
    assigned: set[str] = set()
    for member_id, each in sorted(
        decoded.items(), key=lambda item: (not item[1].is_active, item[1].started_ms, item[0])
    ):
        if each.selection not in assigned:
            assigned.add(each.selection)
            roles[member_id] = ACTIVE
    return roles


class DriverElection:
    """A driver's membership of the group, maintained in a thread. Call `close` when done."""

    def __init__(
        self, bootstrap: Bootstrap, pipeline: str, selection: str, *, session_s: float = SESSION_SECONDS
    ) -> None:
        self._bootstrap = bootstrap
        self._group = f"{pipeline}{GROUP_SUFFIX}"
        self._session_s = session_s
        self._member = DriverMember(
            selection, started_ms=int(time.time() * 1000), host=socket.gethostname(), pid=os.getpid()
        )
        self._changed = threading.Condition()
        self._is_chosen = False
        self._lease_until = 0.0
        self._closing = threading.Event()
        self._last_error: str | None = None
        self._thread = threading.Thread(target=self._run, name="chronik-election", daemon=True)
        self._thread.start()

    # Called in the driver's thread

    def is_active(self) -> bool:
        """Return whether this driver is active: the coordinator has chosen it, and its session cannot have expired."""
        with self._changed:
            return self._is_chosen and time.monotonic() < self._lease_until

    def wait(self, seconds: float) -> bool:
        """Wait until the role changes, at most `seconds`, and return whether this driver is active."""
        with self._changed:
            self._changed.wait(seconds)
        return self.is_active()

    def close(self) -> None:
        """Leave the group, so that a standby driver takes over immediately."""
        self._closing.set()
        self._thread.join(STOP_SECONDS_MAX)

    # Called in the election's thread

    def _run(self) -> None:
        with ClusterClient(self._bootstrap, client_id=CLIENT_ID, timeout_s=REQUEST_SECONDS_MAX) as cluster:
            membership = GroupMembership(
                cluster,
                self._group,
                PROTOCOL_TYPE,
                PROTOCOL,
                assign_roles,
                session_timeout_s=self._session_s,
                rebalance_timeout_s=REBALANCE_SECONDS,
            )
            while not self._closing.is_set():
                try:
                    self._stay_member(membership)
                except (ClientError, KafkaError, OSError) as error:
                    if self._last_error is None:
                        logger.warning("group %s: driver election failed: %s; retrying", self._group, error)
                    self._last_error = str(error)
                    cluster.invalidate_metadata()
                    self._closing.wait(RETRY_SECONDS)
            with suppress(ClientError, KafkaError, OSError):
                membership.leave()

    def _stay_member(self, membership: GroupMembership) -> None:
        self._join(membership)
        while not self._closing.wait(min(HEARTBEAT_SECONDS, self._session_s / 5)):
            sent_at = time.monotonic()
            if not membership.heartbeat():
                return
            self._renew_lease(sent_at)

    def _join(self, membership: GroupMembership) -> None:
        metadata = msgspec.json.encode(msgspec.structs.replace(self._member, is_active=self.is_active()))
        role = membership.join(metadata)
        self._last_error = None
        with self._changed:
            self._is_chosen = role == ACTIVE
            self._lease_until = time.monotonic() + self._session_s
            self._changed.notify_all()

    def _renew_lease(self, sent_at: float) -> None:
        with self._changed:
            self._lease_until = max(self._lease_until, sent_at + self._session_s)
