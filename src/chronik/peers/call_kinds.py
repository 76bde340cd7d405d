"""What a node may ask of another: every kind of call, with its number on the wire."""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class CallKind(IntEnum):
    """These numbers must never change."""

    FORWARD = 1  # to the leader: propose this command
    PING = 2  # answered at once, with nothing; a node that does not know it says so, which is an answer, too
    HEARTBEAT = 16  # to the controller: this broker is alive, in this epoch
    QUORUM = 17  # to the leader: who holds how much of the log?
    JOIN = 18  # is there a cluster, and may this disk be part of it?
    FETCH = 19  # from a follower to the leader of its partitions: which records come next?
    WAKE = 20  # from a follower: answer my waiting fetch with what there is
    MARKERS = 21  # from a transaction's coordinator to the leader of its partitions: this is decided
    JOIN_TRANSACTION = 22  # to a transaction's coordinator: this partition, or group, is part of it
    ADMIN = 23  # from a node's console: answer this request for somebody who is logged in there
    STATUS = 24  # from a node's console: how are you?
