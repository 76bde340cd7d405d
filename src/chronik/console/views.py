"""What a node's image looks like from outside: parts of the status page, and metrics, made from the image alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from chronik.console.source import Metric, Sample
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.image import Image
from chronik.metadata.levels import level_of
from chronik.metadata.records import Broker, CommittedOffset, TransactionState


def hash_text(state_hash: int) -> str:
    return f"{state_hash:032x}"


def image_view(image: Image) -> dict[str, Any]:
    """Returns the part of the status page that all nodes agree on at an equal `applied_index`.

    `recent_hashes` are [index, hash] pairs, oldest first: nodes that are some commands apart are compared by them.
    """
    return {
        "cluster_id": image.cluster_id,
        "level": level_of(image.features),
        "applied_index": image.applied_index,
        "state_hash": hash_text(image.state_hash),
        "recent_hashes": [[index, hash_text(state_hash)] for index, state_hash in image.recent_hashes()],
        "brokers": [broker_view(broker) for _, broker in sorted(image.brokers.items())],
        "topics": len(image.topics),
        "groups": len(image.groups),
    }


def broker_view(broker: Broker) -> dict[str, Any]:
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


def group_view(image: Image, group_id: str) -> dict[str, Any] | None:
    """Returns this node's own view of a group: its state and what it has committed; None when there is neither."""
    group, offsets = image.groups.get(group_id), image.offsets(group_id)
    if group is None and not offsets:
        return None
    return {
        "group": group_id,
        "applied_index": image.applied_index,
        "state": group.state if group is not None else None,
        "protocol_type": group.protocol_type if group is not None else None,
        "generation": group.generation if group is not None else None,
        "members": [member.member_id for member in group.members] if group is not None else [],
        "offsets": _offset_rows({topic: dict(partitions) for topic, partitions in offsets.by_topic().items()}),
    }


def _offset_rows(offsets: Mapping[str, Mapping[int, CommittedOffset]]) -> Iterator[dict[str, Any]]:
    """Yields rows in order, from a copy: what is committed while the page is read does not belong on it."""
    for topic in sorted(offsets):
        for partition, committed in sorted(offsets[topic].items()):
            yield {
                "topic": topic,
                "partition": partition,
                "offset": committed.offset,
                "leader_epoch": committed.leader_epoch,
                "metadata": committed.metadata,
                "commit_time_ms": committed.commit_time_ms,
            }


def image_metrics(image: Image) -> Iterator[Metric]:
    statuses = [broker.status for broker in image.brokers.values()]
    yield gauge("chronik_metadata_applied_index", "The last command applied to this node's image.", image.applied_index)
    yield Metric(
        "chronik_brokers",
        "gauge",
        "Registered brokers by status, as this node sees them.",
        [Sample(statuses.count(status), {"status": status.name.lower()}) for status in BrokerStatus],
    )
    yield gauge("chronik_topics", "Topics in this node's image.", len(image.topics))
    yield gauge("chronik_groups", "Consumer groups in this node's image.", len(image.groups))
    yield from _transaction_metrics(image)


def _transaction_metrics(image: Image) -> Iterator[Metric]:
    unfinished = list(image.unfinished_transactions())
    began = [each.began_ms for each in unfinished if each.state is TransactionState.ONGOING]
    yield gauge("chronik_transactional_ids", "Transactional ids in this node's image.", len(image.transactions))
    yield gauge("chronik_open_transactions", "Of those, the ones with an open transaction.", len(began))
    marked = len(unfinished) - len(began)
    yield gauge("chronik_decided_transactions", "Of those, the ones whose markers are on their way.", marked)
    oldest = min(began) / 1000 if began else 0
    told = "When the oldest open transaction began, in seconds since 1970; 0 when none is open."
    yield gauge("chronik_oldest_open_transaction_began_seconds", told, oldest)


def api_metrics(counts: Iterable[tuple[str, int, int]]) -> Iterator[Metric]:
    """Makes metrics from (API, requests, failures) of each API."""
    counts = list(counts)
    requests = [Sample(count, {"api": api}) for api, count, _ in counts]
    failures = [Sample(count, {"api": api}) for api, _, count in counts]
    yield Metric("chronik_requests_total", "counter", "Requests of Kafka clients by API.", requests)
    yield Metric("chronik_request_failures_total", "counter", "Requests whose handler broke, by API.", failures)


def gauge(name: str, help: str, value: float) -> Metric:
    return Metric(name, "gauge", help, [Sample(value)])


def counter(name: str, help: str, value: float) -> Metric:
    return Metric(name, "counter", help, [Sample(value)])
