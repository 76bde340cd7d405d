"""What is written to the node's log about a disk that has lost records, and what an operator can do."""

from __future__ import annotations

from collections.abc import Sequence

from chronik.broker.replica import Replica
from chronik.log.partition import PartitionLog


def what_is_gone(replica: Replica, log: PartitionLog, node_id: int, replicas: Sequence[int]) -> str:
    gone = (
        f"{replica!r}: offsets {log.missing_from} to {log.missing_end - 1} were synced once and are gone from this disk"
        f" ({log.folder})"
    )
    if not log.is_lost:
        return gone
    return (
        f"{gone}: nothing of it is read or written here, unless other replicas fill it again. Bring the files back and"
        " start again, or give them up with `chronik topics begin-anew`"
    ) + _how_to_lead_again(replica, node_id, replicas)


def _how_to_lead_again(replica: Replica, node_id: int, replicas: Sequence[int]) -> str:
    """An unclean election takes the first replica that is online, and others have less than the last one in sync."""
    if len(replicas) == 1:
        return ""
    order = ",".join(map(str, sorted(replicas, key=lambda each: each != node_id)))
    name, index = replica.topic_name, replica.index
    return (
        ". If nobody leads it when they are back, and this node was the last in sync:"
        f" `chronik topics reassign {name} {index}:{order}` makes it the first of the replicas, and"
        f" `chronik topics elect-leaders --topic {name} --partition {index} --unclean` elects it"
    )
