"""JSON views of the metadata image for the status page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chronik.metadata.image import Image
from chronik.metadata.levels import get_cluster_level
from chronik.metadata.offsets import GroupOffsets
from chronik.metadata.records import Broker


def format_state_hash(state_hash: int) -> str:
    """Format a state hash, the 128-bit hash of a node's metadata, as 32 hexadecimal digits."""
    return f"{state_hash:032x}"


def describe_image(image: Image) -> dict[str, Any]:
    """Return the cluster metadata of the status page, which is equal on all nodes with the same `applied_index`.

    `recent_hashes` are [index, hash] pairs, oldest first. They make nodes comparable that are some commands apart.
    """
    return {
        "cluster_id": image.cluster_id,
        "level": get_cluster_level(image.features),
        "applied_index": image.applied_index,
        "state_hash": format_state_hash(image.state_hash),
        "recent_hashes": [[index, format_state_hash(state_hash)] for index, state_hash in image.recent_hashes()],
        "brokers": [describe_broker(broker) for _, broker in sorted(image.brokers.items())],
        "topics": len(image.topics),
        "groups": len(image.groups),
    }


def describe_broker(broker: Broker) -> dict[str, Any]:
    """Return a registered broker as a JSON object."""
    return {
        "id": broker.id,
        "host": broker.host,
        "port": broker.port,
        "listeners": {each.listener: f"{each.host}:{each.port}" for each in broker.endpoints},
        "rack": broker.rack,
        "levels": broker.levels,
        "status": broker.status.name.lower(),
        "epoch": broker.epoch,
        "first_registered_ms": broker.first_registered_ms,
        "registered_ms": broker.registered_ms,
    }


def describe_group(image: Image, group_id: str) -> dict[str, Any] | None:
    """Return a group's state and committed offsets as stored on this node, or None if the node has neither."""
    group, offsets = image.groups.get(group_id), image.frozen_offsets(group_id)
    if group is None and not offsets:
        return None
    return {
        "group": group_id,
        "applied_index": image.applied_index,
        "state": group.state if group is not None else None,
        "protocol_type": group.protocol_type if group is not None else None,
        "generation": group.generation if group is not None else None,
        "members": [member.member_id for member in group.members] if group is not None else [],
        "offsets": _iter_offset_rows(offsets),
    }


def _iter_offset_rows(offsets: GroupOffsets) -> Iterator[dict[str, Any]]:
    """Yield the committed offsets of a group as JSON objects, sorted by topic and partition.

    Offsets committed during iteration are omitted.
    """
    for topic, partitions in offsets.by_topic():
        for partition, committed in partitions:
            yield {
                "topic": topic,
                "partition": partition,
                "offset": committed.offset,
                "leader_epoch": committed.leader_epoch,
                "metadata": committed.metadata,
                "commit_time_ms": committed.commit_time_ms,
            }
