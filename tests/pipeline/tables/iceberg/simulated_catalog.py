"""A simulated catalog behind a faulty network, with several writers and with other tools that change the table.

Requests and responses are lost, repeated and delayed; a delayed request may arrive after its writer has finished.
Other tools append snapshots without offsets, expire snapshots, and change the schema.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from chronik.pipeline.tables.commit_plan import (
    CommitRejectedError,
    PartitionRange,
    SchemaChangedError,
    TaskOutput,
    WrittenFile,
    plan_commit,
)
from chronik.pipeline.tables.iceberg.commit_protocol import (
    Abandoned,
    AbandonReason,
    CommitRequest,
    Committed,
    Outcome,
    Plan,
    Reload,
    Send,
    SnapshotCommit,
    TableHead,
)
from chronik.pipeline.tables.iceberg.landed_offsets import (
    Ancestor,
    LandedOffsets,
    StoredOffsets,
    encode_properties,
    read_stored_offsets,
)

PARTITIONS = 2
WRITERS = 3
UUID = "table"


@dataclass(frozen=True)
class SimulatedFile:
    """A data file with the records of a range, written with a schema."""

    name: str
    span: PartitionRange
    schema_id: int


@dataclass(frozen=True)
class SimulatedSnapshot:
    """A snapshot with all its files, and the summary that describes its last commit."""

    parent_id: int | None
    sequence_number: int
    files: frozenset[SimulatedFile]
    summary: dict[str, str]


@dataclass(frozen=True)
class SimulatedRequest:
    """A commit request with the complete snapshot that it adds."""

    requirements: CommitRequest
    snapshot: SimulatedSnapshot
    properties: dict[str, str]


@dataclass(frozen=True)
class SimulatedMetadata:
    """One version of the table's metadata."""

    head: TableHead
    snapshots: dict[int, SimulatedSnapshot]
    properties: dict[str, str]
    sequence_number: int = 0

    @property
    def files(self) -> frozenset[SimulatedFile]:
        return frozenset() if self.head.snapshot_id is None else self.snapshots[self.head.snapshot_id].files

    def read_offsets(self) -> StoredOffsets:
        ancestors = []
        current = self.head.snapshot_id
        while current is not None and current in self.snapshots:
            ancestors.append(Ancestor(self.snapshots[current].sequence_number, self.snapshots[current].summary))
            current = self.snapshots[current].parent_id
        return read_stored_offsets(ancestors, self.properties)


class SimulatedCatalog:
    """The catalog: it applies a request if its requirements hold."""

    def __init__(self) -> None:
        head = TableHead(UUID, None, 0, frozenset())
        self.metadata = SimulatedMetadata(head, {}, {})
        self.deleted: set[str] = set()
        self.check_requirements = True
        self.has_rolled_back = False

    def apply(self, request: SimulatedRequest) -> bool:
        now, wanted = self.metadata, request.requirements
        if wanted.snapshot_id in now.snapshots or (self.check_requirements and not wanted.is_applicable(now.head)):
            return False
        snapshots = {**now.snapshots, wanted.snapshot_id: request.snapshot}
        self._store(wanted.snapshot_id, snapshots, {**now.properties, **request.properties})
        return True

    def append_by_other_tool(self, snapshot_id: int) -> None:
        """Add a snapshot with the same files and without offsets, as another tool's rewrite does."""
        now = self.metadata
        snapshot = SimulatedSnapshot(now.head.snapshot_id, now.sequence_number + 1, now.files, {})
        self._store(snapshot_id, {**now.snapshots, snapshot_id: snapshot}, now.properties)

    def expire(self) -> None:
        """Remove all snapshots but the current one.

        Nothing is left of a rollback that another tool's snapshot has followed if they expire before the next commit.
        """
        if self.metadata.read_offsets().is_rolled_back:
            return
        current = self.metadata.head.snapshot_id
        kept = {number: each for number, each in self.metadata.snapshots.items() if number == current}
        self._store(current, kept, self.metadata.properties)

    def change_schema(self) -> None:
        head = self.metadata.head
        self.metadata = replace(self.metadata, head=replace(head, schema_id=head.schema_id + 1))

    def roll_back(self) -> None:
        """Make the parent of the current snapshot current again."""
        now = self.metadata
        self.has_rolled_back = True
        current = now.snapshots[now.head.snapshot_id or 0]
        if current.parent_id is not None and current.parent_id in now.snapshots:
            self._store(current.parent_id, now.snapshots, now.properties)

    def _store(
        self, snapshot_id: int | None, snapshots: dict[int, SimulatedSnapshot], properties: dict[str, str]
    ) -> None:
        head = replace(self.metadata.head, snapshot_id=snapshot_id, snapshot_ids=frozenset(snapshots))
        added = (snapshots[snapshot_id].sequence_number,) if snapshot_id is not None else ()
        last = max((self.metadata.sequence_number, *added))
        self.metadata = SimulatedMetadata(head, snapshots, properties, last)

    def check(self) -> None:
        """Check that all offsets below the next ones are in exactly one file, and that all files exist.

        The offsets of a table that was rolled back to a snapshot without any are unknown.
        """
        stored = self.metadata.read_offsets()
        offsets = None if stored.is_rolled_back and stored.in_snapshot is None else stored.of_rows.next_offsets
        for partition in range(PARTITIONS):
            position = 0
            spans = sorted(
                (file.span for file in self.metadata.files if file.span.partition == partition),
                key=lambda span: span.start,
            )
            for span in spans:
                assert span.start == position, f"partition {partition}: {span} follows offset {position}"
                position = span.end
            is_next = offsets is None or position == offsets.get(partition, 0)
            assert is_next, f"partition {partition}: rows up to {position}, not {offsets}"
        for snapshot in self.metadata.snapshots.values():
            missing = {file.name for file in snapshot.files} & self.deleted
            assert not missing, f"deleted files in a snapshot: {missing}"


class SimulatedNetwork:
    """A network that loses, repeats and delays requests and responses."""

    def __init__(self, catalog: SimulatedCatalog, choice: random.Random, *, knows_conflicts: bool) -> None:
        self.catalog = catalog
        self.faults = True
        self._choice = choice
        self._delayed: list[SimulatedRequest] = []
        self._knows_conflicts = knows_conflicts
        """Whether a conflict proves that a request was not applied, as in a SQL catalog."""

    def send(self, request: SimulatedRequest) -> Outcome:
        fault = self._choice.random() if self.faults else 1.0
        if fault < 0.1:
            return Outcome.UNKNOWN  # the request is lost
        if fault < 0.25:
            self._delayed += [request] * self._choice.randint(1, 2)
            return Outcome.UNKNOWN
        is_applied = self.catalog.apply(request)
        if fault < 0.35:
            return Outcome.UNKNOWN  # the response is lost
        if fault < 0.45 and not self._knows_conflicts:
            self._delayed.append(request)
            is_applied = self.catalog.apply(request)  # a gateway repeats the request, and returns the second response
        if is_applied:
            return Outcome.ACCEPTED
        return Outcome.REJECTED if self._knows_conflicts else Outcome.UNKNOWN

    def deliver_delayed(self) -> None:
        if self._delayed:
            self.catalog.apply(self._delayed.pop(self._choice.randrange(len(self._delayed))))

    @property
    def is_idle(self) -> bool:
        return not self._delayed


MakeCommit = Callable[[Callable[[], int]], SnapshotCommit]


class SimulatedWriter:
    """A driver that lands ranges, one commit after the other. `step` takes one step of the current commit."""

    def __init__(
        self, name: str, network: SimulatedNetwork, choice: random.Random, ids: Callable[[], int], make: MakeCommit
    ) -> None:
        self.reported = 0
        self.stopped_by: StoredOffsets | None = None
        self._name = name
        self._network = network
        self._catalog = network.catalog
        self._choice = choice
        self._ids = ids
        self._make = make
        self._numbers = count()
        self._commit: SnapshotCommit | None = None
        self._files: list[SimulatedFile] = []
        self._seen: SimulatedMetadata | None = None
        self._request: SimulatedRequest | None = None

    def step(self) -> None:
        if self._commit is None:
            self._start()
            return
        commit = self._commit
        match commit.action:
            case Reload():
                if self._network.faults and self._choice.random() < 0.1:
                    commit.reload_failed()
                else:
                    self._seen = self._catalog.metadata
                    commit.reloaded(self._seen.head)
            case Plan(request):
                self._plan(request)
            case Send():
                assert self._request is not None
                commit.responded(self._network.send(self._request))
            case Committed():
                self._check_reported()
                self.reported += 1
                self._commit = None
            case Abandoned(reason):
                assert reason is not AbandonReason.REPLACED
                self._commit = None  # the files may be part of the table

    def crash(self) -> None:
        self._commit = None

    def _start(self) -> None:
        """Read the offsets, and write a file with the next records of one or two partitions."""
        now = self._catalog.metadata
        stored = now.read_offsets()
        if stored.is_rolled_back:
            self.stopped_by = stored
            return
        partitions = self._choice.sample(range(PARTITIONS), self._choice.randint(1, PARTITIONS))
        self._files = []
        for partition in partitions:
            start = stored.of_rows.next_offsets.get(partition, 0)
            span = PartitionRange(partition, start, start + self._choice.randint(1, 5))
            name = f"{self._name}-{next(self._numbers)}-{partition}"
            self._files.append(SimulatedFile(name, span, now.head.schema_id))
        self._commit = self._make(self._ids)

    def _plan(self, request: CommitRequest) -> None:
        assert self._seen is not None
        assert self._commit is not None
        stored = self._seen.read_offsets()
        if stored.is_rolled_back:
            self.stopped_by = stored
            self._commit = None
            return
        outputs = {TaskOutput((file.span,), (_to_written_file(file),)): file for file in self._files}
        try:
            if any(file.schema_id != request.schema_id for file in self._files):
                raise SchemaChangedError("columns were changed")
            choice = plan_commit(outputs, dict.fromkeys(range(PARTITIONS), 0) | dict(stored.of_rows.next_offsets))
        except CommitRejectedError:
            if not self._commit.is_undecided:
                self._catalog.deleted |= {file.name for file in self._files}
            self._commit = None
            return
        if not choice.new_outputs:
            self._commit = None  # another writer has landed these records
            return
        landed = stored.of_rows.advance(choice.next_offsets)
        files = self._seen.files | {outputs[each] for each in choice.new_outputs}
        number = self._seen.sequence_number + 1
        snapshot = SimulatedSnapshot(request.parent_id, number, files, landed.encode())
        self._request = SimulatedRequest(request, snapshot, self._build_properties(landed, number))
        self._commit.planned()

    def _build_properties(self, landed: LandedOffsets, sequence_number: int) -> dict[str, str]:
        return encode_properties(landed, sequence_number)

    def _check_reported(self) -> None:
        """Check that the offsets of a commit that is reported as done are landed, unless they were rolled back."""
        if self._catalog.has_rolled_back:
            return
        offsets = self._catalog.metadata.read_offsets().of_rows.next_offsets
        assert all(offsets.get(file.span.partition, 0) >= file.span.end for file in self._files), "reported, not landed"


def _to_written_file(file: SimulatedFile) -> WrittenFile:
    return WrittenFile(file.name, 1, 1, _NO_VALUES, "{}", 0)


class _NoValues(dict[str, str | None]):
    """Partition values that can be hashed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return 0


_NO_VALUES = _NoValues()


class Simulation:
    """Writers and tools that take random steps until the faults stop; then every writer must finish a commit."""

    def __init__(
        self,
        seed: int,
        make: MakeCommit = SnapshotCommit,
        writer: type[SimulatedWriter] = SimulatedWriter,
        *,
        rolls_back: bool = False,
    ) -> None:
        self.choice = random.Random(seed)
        self.catalog = SimulatedCatalog()
        self.network = SimulatedNetwork(self.catalog, self.choice, knows_conflicts=seed % 2 == 0)
        self.trace: list[tuple[int | None, int, int]] = []
        self._ids = count(1)
        self._rolls_back = rolls_back
        self.writers = [
            writer(f"writer {number}", self.network, self.choice, self._next_id, make) for number in range(WRITERS)
        ]

    def _next_id(self) -> int:
        return next(self._ids)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._take_step()
            self._check()
        self.network.faults = False
        while not self.network.is_idle:
            self.network.deliver_delayed()
            self._check()
        for writer in self.writers:
            target = writer.reported + 1
            for _ in range(500):
                writer.step()
                self._check()
                if writer.reported == target or writer.stopped_by is not None:
                    break
            else:
                raise AssertionError("a writer makes no progress without faults")

    def _take_step(self) -> None:
        fault = self.choice.random()
        if fault < 0.03:
            self.catalog.append_by_other_tool(self._next_id())
        elif fault < 0.05:
            self.catalog.expire()
        elif fault < 0.06:
            self.catalog.change_schema()
        elif fault < 0.12:
            self.network.deliver_delayed()
        elif fault < 0.14:
            self.choice.choice(self.writers).crash()
        elif fault < 0.145 and self._rolls_back and self.catalog.metadata.head.snapshot_id is not None:
            self.catalog.roll_back()
        else:
            self.choice.choice(self.writers).step()

    def _check(self) -> None:
        self.catalog.check()
        head = self.catalog.metadata.head
        self.trace.append((head.snapshot_id, head.schema_id, len(self.catalog.metadata.files)))
