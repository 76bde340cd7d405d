"""A checker of replication guarantees, run repeatedly during a simulation and at its end.

Records below a leader's high watermark, acknowledged with acks=all, or returned to a consumer are committed: every
member of the ISR then has them on its disk, unchanged and at the same offset, until they are deleted by request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from chronik.broker.replica import Replica
from chronik.metadata.image import Image
from chronik.protocol.batch import iter_batches
from tests.replication.host import Host, Process

Key = tuple[bytes, int]
READ_BYTES = 1 << 20
UNKNOWN = -1


class Violation(AssertionError):
    """A replication guarantee is violated."""


class Batch(NamedTuple):
    """A record batch. Its checksum identifies it, because every batch has unique contents."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int
    producer_id: int
    base_sequence: int
    producer_epoch: int = 0

    @property
    def is_numbered(self) -> bool:
        """Return whether the batch has a sequence number; transaction markers have none."""
        return self.producer_id >= 0 and self.base_sequence >= 0


class ReplicaView:
    """The batches read from one replica, and the number of committed ones verified in it."""

    def __init__(self, replica: Replica) -> None:
        self._log = replica.log
        self._truncations = self._log._truncations
        self.batches: list[Batch] = []
        self.compared = 0

    def refresh(self) -> list[Batch]:
        """Read and return the batches appended since the last call."""
        log = self._log
        if log._truncations != self._truncations:
            self._truncations = log._truncations
            self.batches, self.compared = [], 0
        offset = max(self.batches[-1].next_offset if self.batches else 0, log.log_start_offset)
        known = len(self.batches)
        while offset < log.log_end_offset:
            data = log.read(offset, READ_BYTES, log.log_end_offset)
            if not data:
                raise Violation(f"{log.directory}: no records readable at {offset} of {log.log_end_offset}")
            for _, header in iter_batches(data):
                offset = header.next_offset
                self.batches.append(
                    Batch(
                        header.base_offset,
                        header.next_offset,
                        header.partition_leader_epoch,
                        header.crc,
                        header.producer_id,
                        header.base_sequence,
                        header.producer_epoch,
                    )
                )
        return self.batches[known:]


class Committed:
    """The committed batches of one partition, in order."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.by_offset: dict[int, Batch] = {}
        self.deleted_before = 0
        self.written: dict[tuple[int, int], int] = {}
        """Batch at each (epoch, offset), on any replica."""
        self.watermarks: dict[int, int] = {}
        """Highest high watermark seen in each epoch."""
        self._last_of_producer: dict[int, Batch] = {}

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def add(self, batch: Batch) -> None:
        """Add a committed batch, and check that an idempotent producer's batches are in order and without duplicates.

        Batches after deleted ones are exempt: followers learn the producers' states from the records they copy, so a
        replica that was filled later cannot know them (as in Kafka).
        """
        self.batches.append(batch)
        self.by_offset[batch.base_offset] = batch
        if not batch.is_numbered:
            return
        before = self._last_of_producer.get(batch.producer_id)
        self._last_of_producer[batch.producer_id] = batch
        if before is None or before.base_offset < self.deleted_before:
            return
        if batch.producer_epoch < before.producer_epoch:
            raise Violation(f"{batch} follows {before} of a later epoch")
        if batch.producer_epoch > before.producer_epoch:
            if batch.base_sequence:
                raise Violation(f"{batch} is the first of its epoch and leaves a gap")
        elif batch.base_sequence <= before.base_sequence:
            raise Violation(f"{batch} follows {before} of the same producer")
        elif batch.base_sequence != before.base_sequence + before.next_offset - before.base_offset:
            raise Violation(f"{batch} leaves a gap after {before} of the same producer")


class ReplicationChecker:
    """The checker of a simulated cluster."""

    def __init__(self, image: Image, hosts: Mapping[int, Host]) -> None:
        self._image = image
        self._hosts = hosts
        self.partitions: defaultdict[Key, Committed] = defaultdict(Committed)
        self._views: dict[Replica, ReplicaView] = {}
        self.acknowledged = 0
        self.consumed = 0
        self.looks = 0

    @property
    def highest_epoch(self) -> int:
        return max((epoch for committed in self.partitions.values() for epoch in committed.watermarks), default=0)

    # -- client observations ------------------------------------------------------------------------------------------

    def on_acknowledged(self, key: Key, offset: int, crc: int) -> None:
        """Check a batch that was acknowledged with acks=all and without an error.

        Its leader may have changed since and may no longer know the batch's offset.
        """
        self.acknowledged += 1
        committed = self.partitions[key]
        if offset == UNKNOWN:
            if not any(batch.crc == crc for batch in committed.batches):
                raise Violation(f"{key}: acknowledged batch was never below a high watermark")
            return
        known = committed.by_offset.get(offset)
        if known is None:
            raise Violation(f"{key}: acknowledged offset {offset} was never below a high watermark")
        if known.crc != crc:
            raise Violation(f"{key}: acknowledged offset {offset} contains {known}")

    def on_consumed(self, key: Key, replica: Replica, data: memoryview) -> None:
        committed = self.partitions[key]
        self.record_committed(key, replica)
        for _, header in iter_batches(data):
            self.consumed += 1
            if header.next_offset > replica.high_watermark:
                raise Violation(f"{replica!r}: {header} was read above the high watermark {replica.high_watermark}")
            known = committed.by_offset.get(header.base_offset)
            if header.base_offset >= committed.deleted_before and (known is None or known.crc != header.crc):
                raise Violation(f"{replica!r}: a consumer read {header}, but {known} is committed")

    def on_deletion(self, key: Key, offset: int) -> None:
        committed = self.partitions[key]
        committed.deleted_before = max(committed.deleted_before, offset)

    # -- replica contents ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check all partitions."""
        self.looks += 1
        for host in self._hosts.values():
            process = host.process
            if process is not None and process.is_booted:
                for replica in process.replicas:
                    if replica.log_if_open is not None and not replica.is_abandoned:
                        self._scan(replica)
        self.check_in_sync()

    def on_high_watermark(self, replica: Replica) -> None:
        """Handle an advance of the replica's high watermark."""
        process = self._hosts[replica._node_id].process
        if process is not None and process.is_booted and not process.is_fenced:
            self.record_committed((replica.topic_id, replica.index), replica)

    def _scan(self, replica: Replica) -> ReplicaView:
        view = self._views.get(replica)
        if view is None or view._log is not replica.log:
            view = self._views[replica] = ReplicaView(replica)
        written = self.partitions[replica.topic_id, replica.index].written
        for batch in view.refresh():
            crc = written.setdefault((batch.epoch, batch.base_offset), batch.crc)
            if crc != batch.crc:
                raise Violation(
                    f"{replica!r}: epoch {batch.epoch} has different data at offset {batch.base_offset} on two nodes"
                )
        return view

    def record_committed(self, key: Key, replica: Replica) -> None:
        """Record all batches below a leader's high watermark as committed."""
        committed = self.partitions[key]
        watermark = replica.high_watermark
        before = committed.watermarks.get(replica.leader_epoch, 0)
        if watermark < before:
            raise Violation(f"{replica!r}: high watermark decreased from {before} to {watermark}")
        committed.watermarks[replica.leader_epoch] = watermark
        if watermark <= committed.end:
            return
        for batch in self._scan(replica).batches:
            if committed.end <= batch.base_offset and batch.next_offset <= watermark:
                if batch.base_offset > max(committed.end, committed.deleted_before):
                    raise Violation(f"{replica!r}: offset {committed.end} is missing below the high watermark")
                committed.add(batch)
        if committed.end < watermark and watermark > committed.deleted_before:
            raise Violation(f"{replica!r}: high watermark {watermark} is not at the end of a batch")

    def check_in_sync(self) -> None:
        for topic in self._image.topics.values():
            for index, partition in enumerate(topic.partitions):
                key = (topic.id, index)
                for member in partition.isr:
                    process = self._hosts[member].process
                    if process is not None and process.is_registered:
                        self._check_member(key, process, process.replicas.find(topic.name, index))

    def _check_member(self, key: Key, process: Process, replica: Replica | None) -> None:
        committed = self.partitions[key]
        if replica is None or replica.topic_id != key[0]:
            topic = process.store.image.topics_by_id.get(key[0])
            is_known = topic is not None and process.host.id in topic.partitions[key[1]].replicas
            if committed.end > committed.deleted_before and is_known:
                raise Violation(f"node {process.host.id} is in sync but has no replica of {key}")
            return
        if replica.log_if_open is None:
            return  # the log has not been opened yet
        view = self._scan(replica)
        held = {batch.base_offset: batch for batch in view.batches} if view.compared < len(committed.batches) else {}
        for batch in committed.batches[view.compared :]:
            if batch.base_offset >= max(committed.deleted_before, replica.log.log_start_offset):
                own = held.get(batch.base_offset)
                if own is None or own.crc != batch.crc or own.next_offset > replica.log.synced_offset:
                    raise Violation(
                        f"{replica!r}: node {process.host.id} is in sync, but has {own} where {batch} is committed"
                        f" (synced up to {replica.log.synced_offset})"
                    )
            elif batch.base_offset >= committed.deleted_before:
                raise Violation(
                    f"{replica!r}: node {process.host.id} is in sync, but its log starts at"
                    f" {replica.log.log_start_offset}, and {batch} is committed"
                )
        view.compared = len(committed.batches)

    # -- end of the run -----------------------------------------------------------------------------------------------

    def check_end(self) -> None:
        self.check()
        for topic in self._image.topics.values():
            for index, partition in enumerate(topic.partitions):
                replicas = [self._replica(member, topic.name, index) for member in partition.isr]
                self._check_identical(replicas)

    def _replica(self, member: int, topic: str, index: int) -> Replica:
        process = self._hosts[member].process
        replica = None if process is None else process.replicas.find(topic, index)
        if replica is None:
            raise Violation(f"node {member} is in sync but has no replica of {topic}-{index}")
        return replica

    def _check_identical(self, replicas: list[Replica]) -> None:
        start = max(replica.log.log_start_offset for replica in replicas)
        end = max(replica.high_watermark for replica in replicas)
        contents = [
            [batch for batch in self._scan(replica).batches if start <= batch.base_offset < end] for replica in replicas
        ]
        if any(content != contents[0] for content in contents):
            raise Violation(f"{replicas[0]!r}: in-sync replicas differ: {contents}")
