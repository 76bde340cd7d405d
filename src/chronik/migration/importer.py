"""An import from planning to verification.

Every step can be repeated: an import that is interrupted at any point continues when it is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from chronik.client.cluster import ClusterClient
from chronik.ids import format_id
from chronik.metadata.levels import IMPORTED_GROUPS_LEVEL, get_cluster_level
from chronik.metadata.records import Topic
from chronik.migration import failpoints
from chronik.migration.import_plan import (
    ImportPlan,
    build_begin_request,
    build_finish_request,
    build_group_requests,
    build_import_plan,
    build_topic_requests,
    find_import_obstacles,
    find_missing_groups,
)
from chronik.migration.record_transfer import ImportStream, PartitionToImport, build_commit_predicate, transfer_records
from chronik.migration.registry_import import (
    build_registry_requests,
    find_missing_registry,
    find_settings_conflicts,
)
from chronik.migration.security_import import build_security_requests, find_missing_security, find_security_conflicts
from chronik.migration.source import ImportSource, MigrationError
from chronik.migration.target_cluster import TargetCluster
from chronik.migration.verification import VerificationResult, find_metadata_differences, verify_records
from chronik.protocol.messages.alter_import import AlterImportRequest, ImportAction
from chronik.wording import pluralize

ReportProgress = Callable[[str], None]
"""A callback that receives a progress message of an import."""


class ImportResult(NamedTuple):
    """The result of a finished import."""

    plan: ImportPlan
    compared: VerificationResult | None
    """The amount of data compared with the source, or None if an earlier run of the command finished the import."""
    kept: list[str]
    """The users, quotas and schema settings that the cluster has already with other values, and keeps."""


class Importer:
    """An importer of a source's topics, groups, security metadata and schemas into a cluster."""

    def __init__(
        self, source: ImportSource, cluster: ClusterClient, tell: ReportProgress, replication_factor: int | None = None
    ) -> None:
        """Connect to the cluster and plan the import.

        Without a replication factor, topics of a backup keep theirs, limited by the number of brokers, and topics of a
        data directory get the cluster's default.

        Raises:
            MigrationError: The source is incomplete or the cluster's feature level is too low.
        """
        self._source = source
        self._tell = tell
        self._factor = replication_factor
        self._target = TargetCluster(cluster)
        self.plan: Final = build_import_plan(source)

    @property
    def is_finished(self) -> bool:
        """Return whether the source has been imported completely."""
        known = self._target.image.latest_import
        return known is not None and known.id == self._source.id and known.is_finished

    @property
    def is_in_progress(self) -> bool:
        """Return whether an import of the source has been started and is not finished."""
        known = self._target.image.latest_import
        return known is not None and known.id == self._source.id and not known.is_finished

    def find_obstacles(self) -> list[str]:
        """Return one sentence for each reason why the import is not possible."""
        return [] if self.is_finished else find_import_obstacles(self.plan, self._source, self._target.image)

    def run(self) -> ImportResult:
        """Run an import, or continue an interrupted one, and verify the imported data against the source.

        Raises:
            MigrationError: The import is not possible, or the imported data differs from the source.
        """
        if found := self.find_obstacles():
            raise MigrationError("; ".join(found))
        compared, kept = None, list[str]()
        if not self.is_finished:
            first_producer_id = self._begin_import()
            self._create_topics()
            partitions = list(self._iter_partitions_to_import(first_producer_id))
            transfer_records(self._target, self._source.id, partitions, self._create_progress_callback("records"))
            compared = verify_records(
                self._target, self._source.id, partitions, self._create_progress_callback("compared")
            )
            failpoints.hit_failpoint(failpoints.COMPARED)
            kept = self._import_security()
            kept += self._import_registry()
            self._finish_import()
            failpoints.hit_failpoint(failpoints.FINISHED)
        self._target.refresh()
        found = find_metadata_differences(self._target.image, self.plan.topics, self.plan.groups)
        found += find_missing_security(self.plan.security, self._target.image)
        found += find_missing_registry(self.plan.registry, self._target.image.schemas)
        found += [each for each in find_security_conflicts(self.plan.security, self._target.image) if each not in kept]
        if found and compared is not None:
            raise MigrationError("the import is finished, but differs from the source: " + "; ".join(found[:5]))
        return ImportResult(self.plan, compared, kept)

    def _create_progress_callback(self, what: str) -> Callable[[int, int], None]:
        count = self.plan.partition_count

        def tell(partitions: int, records: int) -> None:
            of, read = pluralize(count, "partition"), pluralize(records, "record")
            self._tell(f"{what}: {partitions:,} of {of}, {read}")

        return tell

    def _begin_import(self) -> int:
        first_producer_id = self._target.alter(build_begin_request(self._source, self.plan)).first_producer_id
        failpoints.hit_failpoint(failpoints.BEGUN)
        return first_producer_id

    def _create_topics(self) -> None:
        done = 0
        for request in build_topic_requests(self._source, self.plan, self._choose_replication_factor):
            self._target.alter(request)
            done += len(request.topics)
            self._tell(f"topics: {done:,} of {len(self.plan.topics):,}")
            failpoints.hit_failpoint(failpoints.TOPICS)
        self._target.refresh()

    def _choose_replication_factor(self, topic: Topic) -> int:
        if self._factor is not None:
            return self._factor
        return min(topic.replication_factor, len(self._target.image.brokers)) if self._source.is_backup else -1

    def _iter_partitions_to_import(self, first_producer_id: int) -> Iterator[PartitionToImport]:
        plan, image = self.plan, self._source.image
        for topic in plan.topics:
            for index in range(len(topic.partitions)):
                log, about = plan.logs[topic.id, index], f"{topic.name}-{index}"
                decisions = build_commit_predicate(image, topic.id, index)
                stream = partial(ImportStream, log, about, first_producer_id, plan.producer_ids, decisions)
                yield PartitionToImport((topic.id, index), about, log, stream)

    def _import_security(self) -> list[str]:
        """Import users, ACLs and quotas. Return the entries skipped because the cluster has different ones."""
        self._target.refresh()
        kept = find_security_conflicts(self.plan.security, self._target.image)
        for request in build_security_requests(self.plan.security, self._source.id):
            self._target.import_security(request)
            failpoints.hit_failpoint(failpoints.SECURED)
        return kept

    def _import_registry(self) -> list[str]:
        """Import the schema registry. Return the configs and modes that the cluster keeps because it has others."""
        kept = find_settings_conflicts(self.plan.registry, self._target.image.schemas)
        done = 0
        for request in build_registry_requests(self.plan.registry, self._source.id):
            self._target.import_schemas(request)
            done += len(request.commands)
            self._tell(f"schema registry: {pluralize(done, 'entry', 'entries')}")
            failpoints.hit_failpoint(failpoints.SCHEMAS)
        return kept

    def _import_groups(self) -> None:
        """Import consumer groups and committed offsets while the imported topics are still invisible to clients.

        A consumer that sees a topic then also finds the offsets of its group.
        """
        self._target.refresh()
        outstanding = list(find_missing_groups(self.plan.groups, self._target.image))
        done, count = 0, sum(len(group.offsets) for group in outstanding)
        for request in build_group_requests(self._source, outstanding):
            self._target.alter(request)
            done += sum(len(group.offsets) for group in request.groups)
            self._tell(f"committed offsets: {done:,} of {count:,}")
            failpoints.hit_failpoint(failpoints.GROUPS)

    def _finish_import(self) -> None:
        if get_cluster_level(self._target.image.features) >= IMPORTED_GROUPS_LEVEL:
            self._import_groups()
            self._target.alter(build_finish_request(self._source))
        else:
            self._target.alter(build_finish_request(self._source, self.plan.groups))


def abort_import(cluster: ClusterClient) -> str | None:
    """Abort the unfinished import and delete its topics and groups. Return its source and id, or None without one."""
    target = TargetCluster(cluster)
    known = target.image.latest_import
    if known is None or known.is_finished:
        return None
    target.alter(AlterImportRequest(import_id=known.id, action=ImportAction.GIVE_UP))
    return f"{known.source} ({format_id(known.id)})"
