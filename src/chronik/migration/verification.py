"""Verification of an import: compares every byte of every log, then configs, groups and offsets with the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from chronik.crc import crc32c
from chronik.limits import MIB
from chronik.metadata.commands.imports import ImportedGroup
from chronik.metadata.image import Image
from chronik.metadata.records import Topic
from chronik.migration.record_transfer import CONCURRENT_PARTITIONS, BatchChunk, PartitionToImport
from chronik.migration.source import MigrationError
from chronik.migration.target_cluster import RETRIABLE_ERRORS, TargetCluster, TopicIdPartition
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch_imported import (
    FetchImportedPartition,
    FetchImportedRequest,
    FetchImportedResponse,
    FetchImportedResult,
)
from chronik.wording import pluralize

RESPONSE_BYTES: Final = 8 * MIB
"""The target size of a FetchImported response in bytes."""


class VerificationResult(NamedTuple):
    """The amount of data that was verified."""

    partitions: int = 0
    records: int = 0
    size_bytes: int = 0
    checksum: int = 0
    """The checksum of all verified partitions in the order of topic names."""


class _PartitionVerification:
    """The byte-by-byte comparison of one imported partition with the source, and its progress."""

    def __init__(self, wanted: PartitionToImport) -> None:
        self.wanted = wanted
        self._stretches: Iterator[BatchChunk] = iter(wanted.stream())
        self._stretch = next(self._stretches, None)
        self._position = 0
        self._end = wanted.log.end
        self.offset = wanted.log.start  # may be inside the first batch
        self.records = self.size_bytes = self.checksum = 0
        self.is_done = False

    @property
    def bytes_left(self) -> int:
        """Return the number of bytes of the current source chunk that are not compared yet."""
        return 0 if self._stretch is None else len(self._stretch.data) - self._position

    def process_leader_result(self, result: FetchImportedResult) -> bool:
        """Compare fetched records of an imported partition with the source. Return False if no records were returned.

        Raises:
            MigrationError: The logs differ.
        """
        about, start = self.wanted.about, self.wanted.log.start
        data = bytes(result.records or b"")
        if self._stretch is not None:
            if not data:
                return False
            if data != self._stretch.data[self._position : self._position + len(data)]:
                raise MigrationError(f"{about} differs from the source at or shortly after offset {self.offset}")
            self.checksum = crc32c(data, self.checksum)
            self.size_bytes += len(data)
            self._position += len(data)
            if not self.bytes_left:
                self.records += self._stretch.record_count
                self.offset = self._end = self._stretch.end_offset
                self._stretch, self._position = next(self._stretches, None), 0
            else:
                self.offset = _read_base_offset(self._stretch.data, self._position)
        if self._stretch is None:
            ends = result.log_start_offset, result.high_watermark, result.last_stable_offset
            if ends != (start, self._end, self._end):
                raise MigrationError(
                    f"{about}: log start, high watermark and last stable offset are {ends} in the cluster, "
                    f"but {(start, self._end, self._end)} in the source"
                )
            self.is_done = True
        return True


def _read_base_offset(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "big")


def verify_records(
    target: TargetCluster, import_id: bytes, partitions: Sequence[PartitionToImport], tell: Callable[[int, int], None]
) -> VerificationResult:
    """Fetch all imported records from the partition leaders and compare them with the source.

    `tell` is called with the number of verified partitions and records.

    Raises:
        MigrationError: A partition differs or cannot be read.
    """
    left, active = iter(partitions), dict[TopicIdPartition, _PartitionVerification]()
    verified: dict[TopicIdPartition, _PartitionVerification] = {}
    records = 0
    target.restart_progress_timeout()
    while True:
        while len(active) < CONCURRENT_PARTITIONS and (wanted := next(left, None)) is not None:
            active[wanted.key] = _PartitionVerification(wanted)
        if not active:
            break
        has_progressed, reason = False, "no partition has a leader"
        for leader, keys in target.group_by_leader(list(active)).items():
            response = target.send_request(
                leader, _build_fetch_imported_request(import_id, active, keys), FetchImportedResponse
            )
            if response is None:
                reason = f"broker {leader} does not answer"
                continue
            for result in response.partitions:
                verification = active[result.topic_id, result.partition]
                code = ErrorCode(result.error_code)
                if code:
                    reason = f"{verification.wanted.about}: {result.error_message or code.message}"
                    if code not in RETRIABLE_ERRORS:
                        raise MigrationError(reason)
                    continue
                has_progressed = verification.process_leader_result(result) or has_progressed
                if verification.is_done:
                    verified[verification.wanted.key] = active.pop(verification.wanted.key)
                    records += verification.records
        tell(len(verified), records)
        if has_progressed:
            target.restart_progress_timeout()
        else:
            target.wait_for_progress(reason)
    return _summarize_verifications([verified[wanted.key] for wanted in partitions])


def _build_fetch_imported_request(
    import_id: bytes, active: dict[TopicIdPartition, _PartitionVerification], keys: Sequence[TopicIdPartition]
) -> FetchImportedRequest:
    request, left = FetchImportedRequest(import_id=import_id), RESPONSE_BYTES
    for key in keys:
        verification = active[key]
        request.partitions.append(
            FetchImportedPartition(
                topic_id=key[0],
                partition=key[1],
                fetch_offset=verification.offset,
                max_bytes=max(1, verification.bytes_left),
            )
        )
        left -= verification.bytes_left
        if left <= 0:
            break
    return request


def _summarize_verifications(verifications: Sequence[_PartitionVerification]) -> VerificationResult:
    checksum = 0
    for each in verifications:
        checksum = crc32c(each.checksum.to_bytes(4, "big"), checksum)
    return VerificationResult(
        len(verifications),
        sum(each.records for each in verifications),
        sum(each.size_bytes for each in verifications),
        checksum,
    )


def find_metadata_differences(image: Image, topics: Sequence[Topic], groups: Sequence[ImportedGroup]) -> list[str]:
    """Return one sentence for each difference in topics, configs or offsets between the cluster and the source.

    Offsets that clients have committed since the import are ignored.
    """
    found = []
    for topic in topics:
        known = image.topics.get(topic.name)
        if known is None or known.id != topic.id:
            found.append(f"topic {topic.name} is missing or has another id")
        elif (len(known.partitions), known.configs) != (len(topic.partitions), topic.configs):
            count = pluralize(len(known.partitions), "partition")
            found.append(f"topic {topic.name} has {count} and configs {known.configs}")
    for group in groups:
        if group.offsets and group.group_id not in image.groups:  # a group without offsets may have expired
            found.append(f"group {group.group_id} is missing")
        for each in group.offsets:
            committed = image.offset(group.group_id, each.topic, each.partition)
            if committed is None or (committed.commit_time_ms, committed.offset) < (each.commit_time_ms, each.offset):
                found.append(f"group {group.group_id} lacks its offset {each.offset} of {each.topic}-{each.partition}")
    return found
