"""The kinds of calls between nodes, with their numbers on the wire."""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class CallKind(IntEnum):
    """The kind of a call. The numbers are sent between nodes and must never change."""

    FORWARD = 1  # to the leader: propose a command
    PING = 2  # answered immediately and without contents; "unknown kind" from older nodes is an answer too
    HEARTBEAT = 16  # to the controller: the broker is alive in the given epoch
    QUORUM = 17  # to the leader: describe the quorum
    JOIN = 18  # to any node: request admission to the cluster
    FETCH = 19  # from a follower to a partition leader: fetch records
    WAKE = 20  # from a follower: complete the pending fetch immediately
    MARKERS = 21  # from a transaction coordinator to a partition leader: write transaction markers
    JOIN_TRANSACTION = 22  # to a transaction coordinator: add a partition or group to the transaction
    ADMIN = 23  # from a node's console: execute a request on behalf of a logged-in user
    STATUS = 24  # from a node's console: return the node's status
