"""An import from begin to end: planned, begun, made, filled, compared, shown, compared once more.

Each step can be repeated: whoever is stopped at any point begins again, and goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from chronik.client.cluster import Cluster
from chronik.ids import format_id
from chronik.metadata.levels import IMPORTED_GROUPS, level_of
from chronik.metadata.records import Topic
from chronik.moving import failpoints
from chronik.moving.carrying import Wanted, carry
from chronik.moving.comparing import Compared, compare_records, differences
from chronik.moving.plan import Plan, plan_of, refusals
from chronik.moving.requests import absent_groups, begin_request, finish_request, group_requests, topic_requests
from chronik.moving.security import missing, others_there, requests_of
from chronik.moving.source import CannotMove, Source
from chronik.moving.streams import ImportedStream, decisions_of
from chronik.moving.target import Target
from chronik.protocol.messages.alter_import import AlterImportRequest, ImportAction
from chronik.wording import counted

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
            of, read = counted(count, "partition"), counted(records, "record")
            self._tell(f"{what}: {partitions:,} of {of}, {read}")

        return tell

    def _begin(self) -> int:
        first_producer_id = self._target.alter(begin_request(self._source, self.plan)).first_producer_id
        failpoints.reached(failpoints.BEGUN)
        return first_producer_id

    def _make_topics(self) -> None:
        done = 0
        for request in topic_requests(self._source, self.plan, self._factor_of):
            self._target.alter(request)
            done += len(request.topics)
            self._tell(f"topics: {done:,} of {len(self.plan.topics):,}")
            failpoints.reached(failpoints.TOPICS)
        self._target.refresh()

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

    def _bring_groups(self) -> None:
        """Bring groups and committed offsets while the topics are hidden: a consumer that finds a topic finds its
        group's offsets, too."""
        self._target.refresh()
        absent = list(absent_groups(self.plan.groups, self._target.image))
        done, count = 0, sum(len(group.offsets) for group in absent)
        for request in group_requests(self._source, absent):
            self._target.alter(request)
            done += sum(len(group.offsets) for group in request.groups)
            self._tell(f"committed offsets: {done:,} of {count:,}")
            failpoints.reached(failpoints.GROUPS)

    def _finish(self) -> None:
        if level_of(self._target.image.features) >= IMPORTED_GROUPS:
            self._bring_groups()
            self._target.alter(finish_request(self._source))
        else:
            self._target.alter(finish_request(self._source, self.plan.groups))


def give_up(cluster: Cluster) -> str | None:
    """Deletes what an import that is under way has made; returns what it was, or None when there is none."""
    target = Target(cluster)
    known = target.image.imported
    if known is None or known.is_finished:
        return None
    target.alter(AlterImportRequest(import_id=known.id, action=ImportAction.GIVE_UP))
    return f"{known.source} ({format_id(known.id)})"
