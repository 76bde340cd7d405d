"""An import from begin to end: planned, begun, made, filled, compared, shown, compared once more.

Each step can be repeated: whoever is stopped at any point begins again, and goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from chronik.client.cluster import Cluster
from chronik.ids import format_id
from chronik.metadata.commands.brokers import CLUSTER_DEFAULT
from chronik.metadata.records import Topic
from chronik.moving import failpoints
from chronik.moving.carrying import Wanted, carry
from chronik.moving.comparing import Compared, compare_records, differences
from chronik.moving.plan import Plan, plan_of, refusals
from chronik.moving.security import missing, others_there, requests_of
from chronik.moving.source import CannotMove, Source
from chronik.moving.streams import ImportedStream, decisions_of
from chronik.moving.target import Target
from chronik.protocol.messages.alter_import import (
    AlterImportRequest,
    ImportAction,
    ImportConfig,
    ImportGroup,
    ImportGroupConfigs,
    ImportOffset,
    ImportTopic,
)

TOPICS_PER_REQUEST: Final = 200

Tell = Callable[[str], None]


class Imported(NamedTuple):
    plan: Plan
    compared: Compared | None
    """None if it was imported before this run."""
    kept: list[str]
    """What the cluster had already by the same names, one sentence each."""


class Importer:
    def __init__(self, source: Source, cluster: Cluster, tell: Tell, replication_factor: int | None = None) -> None:
        """Without a factor, topics of a backup have as many replicas as they had, if there are as many brokers, and
        those of a folder as many as the cluster gives by default. Raises CannotMove and what the client raises."""
        self._source = source
        self._tell = tell
        self._factor = replication_factor
        self._target = Target(cluster)
        self.plan: Final = plan_of(source)

    @property
    def is_finished(self) -> bool:
        known = self._target.image.imported
        return known is not None and known.id == self._source.id and known.is_finished

    @property
    def is_under_way(self) -> bool:
        known = self._target.image.imported
        return known is not None and known.id == self._source.id and not known.is_finished

    def refusals(self) -> list[str]:
        return [] if self.is_finished else refusals(self.plan, self._source, self._target.image)

    def run(self) -> Imported:
        """Raises CannotMove."""
        if found := self.refusals():
            raise CannotMove("; ".join(found))
        compared, kept = None, list[str]()
        if not self.is_finished:
            first_producer_id = self._begin()
            self._make_topics()
            partitions = list(self._partitions(first_producer_id))
            carry(self._target, self._source.id, partitions, self._told("records"))
            compared = compare_records(self._target, self._source.id, partitions, self._told("compared"))
            failpoints.reached(failpoints.COMPARED)
            kept = self._secure()
            self._finish()
            failpoints.reached(failpoints.FINISHED)
        self._target.refresh()
        found = differences(self._target.image, self.plan.topics, self.plan.groups)
        found += missing(self.plan.security, self._target.image)
        found += [each for each in others_there(self.plan.security, self._target.image) if each not in kept]
        if found and compared is not None:
            raise CannotMove("it was imported, and is not as it was: " + "; ".join(found[:5]))
        return Imported(self.plan, compared, kept)

    def _told(self, what: str) -> Callable[[int, int], None]:
        count = self.plan.partition_count

        def tell(partitions: int, records: int) -> None:
            self._tell(f"{what}: {partitions} of {count} partitions, {records} records")

        return tell

    def _begin(self) -> int:
        plan = self.plan
        request = self._request(ImportAction.BEGIN)
        request.source = self._source.name[:1000]
        request.topic_count = len(plan.topics)
        request.producer_ids = plan.producer_ids
        first_producer_id = self._target.alter(request).first_producer_id
        failpoints.reached(failpoints.BEGUN)
        return first_producer_id

    def _make_topics(self) -> None:
        topics = self.plan.topics
        for first in range(0, len(topics), TOPICS_PER_REQUEST):
            request = self._request(ImportAction.TOPICS)
            request.topics = [self._topic(topic) for topic in topics[first : first + TOPICS_PER_REQUEST]]
            self._target.alter(request)
            self._tell(f"topics: {first + len(request.topics)} of {len(topics)}")
            failpoints.reached(failpoints.TOPICS)
        self._target.refresh()

    def _topic(self, topic: Topic) -> ImportTopic:
        epochs = [
            1 + max(0, partition.leader_epoch, self.plan.logs[topic.id, index].last_epoch)
            for index, partition in enumerate(topic.partitions)
        ]
        return ImportTopic(
            topic_id=topic.id,
            name=topic.name,
            created_ms=topic.created_ms,
            replication_factor=self._factor_of(topic),
            leader_epochs=epochs,
            configs=[ImportConfig(name=name, value=value) for name, value in topic.configs.items()],
        )

    def _factor_of(self, topic: Topic) -> int:
        if self._factor is not None:
            return self._factor
        return min(topic.replication_factor, len(self._target.image.brokers)) if self._source.is_backup else -1

    def _partitions(self, first_producer_id: int) -> Iterator[Wanted]:
        plan, image = self.plan, self._source.image
        for topic in plan.topics:
            for index in range(len(topic.partitions)):
                log, about = plan.logs[topic.id, index], f"{topic.name}-{index}"
                decisions = decisions_of(image, topic.id, index)
                stream = partial(ImportedStream, log, about, first_producer_id, plan.producer_ids, decisions)
                yield Wanted((topic.id, index), about, log, stream)

    def _secure(self) -> list[str]:
        """Brings users, ACLs and quotas before topics are seen: nobody may see them who was not to. Returns what stays
        as the cluster has it."""
        self._target.refresh()
        kept = others_there(self.plan.security, self._target.image)
        for request in requests_of(self.plan.security, self._source.id):
            self._target.bring(request)
            failpoints.reached(failpoints.SECURED)
        return kept

    def _finish(self) -> None:
        image, request = self._source.image, self._request(ImportAction.FINISH)
        request.groups = [
            ImportGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                offsets=[
                    ImportOffset(
                        topic=each.topic,
                        partition=each.partition,
                        offset=each.offset,
                        leader_epoch=each.leader_epoch,
                        metadata=each.metadata,
                        commit_time_ms=each.commit_time_ms,
                        expire_time_ms=each.expire_time_ms,
                    )
                    for each in group.offsets
                ],
            )
            for group in self.plan.groups
        ]
        request.group_configs = [
            ImportGroupConfigs(group_id=group_id, configs=_configs(dict(configs)))
            for group_id, configs in image.group_configs.items()
        ]
        if self._source.is_backup:
            request.cluster_configs = _configs(dict(image.broker_configs.get(CLUSTER_DEFAULT, {})))
        self._target.alter(request)

    def _request(self, action: ImportAction) -> AlterImportRequest:
        return AlterImportRequest(import_id=self._source.id, action=action)


def _configs(configs: dict[str, str]) -> list[ImportConfig]:
    return [ImportConfig(name=name, value=value) for name, value in configs.items()]


def give_up(cluster: Cluster) -> str | None:
    """Deletes what an import that is under way has made; returns what it was, or None when there is none."""
    target = Target(cluster)
    known = target.image.imported
    if known is None or known.is_finished:
        return None
    target.alter(AlterImportRequest(import_id=known.id, action=ImportAction.GIVE_UP))
    return f"{known.source} ({format_id(known.id)})"
