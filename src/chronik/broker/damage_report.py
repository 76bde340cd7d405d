"""The log message about records that a disk has lost, with the operator's options."""

from __future__ import annotations

from collections.abc import Sequence

from chronik.broker.replica import Replica
from chronik.log.partition_log import PartitionLog


def format_missing_records(replica: Replica, log: PartitionLog, node_id: int, replicas: Sequence[int]) -> str:
    """Return the log message about the records that a replica's disk has lost."""
    missing = (
        f"{replica!r}: synced records are missing on disk: offsets {log.missing_start_offset} to "
        f"{log.missing_end_offset - 1}"
        f" directory={log.directory}"
    )
    if not log.has_lost_all_records:
        return missing
    return (
        f"{missing}; the replica serves no reads and writes until other replicas refill it. Restore the files"
        " and restart the node, or abandon the records with `chronik topics begin-anew`"
    ) + _format_reelection_steps(replica, node_id, replicas)


def _format_reelection_steps(replica: Replica, node_id: int, replicas: Sequence[int]) -> str:
    """Return how to make this node the leader again, or an empty string if it has the only replica.

    An unclean election elects the first replica that is online, and other replicas have fewer records than the last
    in-sync replica.
    """
    if len(replicas) == 1:
        return ""
    order = ",".join(map(str, sorted(replicas, key=lambda each: each != node_id)))
    name, index = replica.topic_name, replica.index
    return (
        ". If the partition has no leader after that, and this node was the last in-sync replica:"
        f" `chronik topics reassign {name} {index}:{order}` makes it the first of the replicas, and"
        f" `chronik topics elect-leaders --topic {name} --partition {index} --unclean` elects it"
    )
