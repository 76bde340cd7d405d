"""A metadata image with its log, for tests of commands."""

from __future__ import annotations

from chronik.metadata.apply import apply
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.cluster import SetFeatureLevel
from chronik.metadata.commands.envelope import Command, Envelope, decode_command, encode_command
from chronik.metadata.commands.topics import NO_LEADER, CreateTopic, PartitionAssignment
from chronik.metadata.delta import Delta
from chronik.metadata.image import Image
from chronik.metadata.levels import FEATURE_NAME, FIRST_LEVEL
from chronik.metadata.records import ApplyResult, Partition, Topic
from chronik.metadata.snapshot import encode_snapshot
from chronik.protocol.errors import ErrorCode

NODE = 1
NODE_INCARNATION = b"the life of node"


def build_id(number: int) -> bytes:
    """Return a 16-byte id for a number."""
    return number.to_bytes(16, "big")


def build_assignment(
    *replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None
) -> PartitionAssignment:
    """Return an assignment that is in sync on all replicas and led by the first, by default."""
    return PartitionAssignment(replicas, replicas if isr is None else isr, replicas[0] if leader is None else leader)


class MetadataWorld:
    """An image and the commands that were applied to it."""

    def __init__(self, *brokers: int, level: int | None = None) -> None:
        """Register the brokers; with a level, the cluster is at that level and the brokers support it."""
        self.image = Image()
        self.envelopes: list[Envelope] = []
        self.delta = Delta(0)
        self._levels = (FIRST_LEVEL, level or FIRST_LEVEL)
        if level is not None:
            self.accept(SetFeatureLevel(FEATURE_NAME, level))
        for broker in brokers:
            self.register(broker)

    def send(self, envelope: Envelope) -> ApplyResult:
        """Encode, decode and apply a command as a store does."""
        envelope = decode_command(encode_command(envelope))
        self.envelopes.append(envelope)
        result, self.delta = apply(self.image, envelope, self.image.applied_index + 1)
        return result

    def apply(self, command: Command) -> ApplyResult:
        """Apply a command and return its result."""
        sequence = len(self.envelopes) + 1
        return self.send(Envelope(NODE, NODE_INCARNATION, sequence, sequence - 1, command))

    def accept(self, command: Command) -> ApplyResult:
        """Apply a command that must succeed."""
        result = self.apply(command)
        assert result.code is ErrorCode.NONE, result
        assert result.index == self.image.applied_index
        return result

    def reject(self, command: Command) -> tuple[ErrorCode, str]:
        """Apply a command that must be rejected without changing the image. Return its code and message."""
        before = image_records(self.image)
        result = self.apply(command)
        assert result.code is not ErrorCode.NONE
        assert image_records(self.image) == before
        assert not self.delta
        return result.code, result.message

    def register(
        self, broker: int, *, incarnation_number: int = 0, directory_number: int | None = None, durable: bool = False
    ) -> int:
        """Register a broker incarnation and return its broker epoch."""
        incarnation = build_id(1000 * (incarnation_number + 1) + broker)
        directory = build_id(broker if directory_number is None else directory_number)
        command = RegisterBroker(
            broker, f"host{broker}", 9092, None, incarnation, directory, durable, levels=self._levels
        )
        return self.accept(command).value

    def create(self, name: str, *partitions: PartitionAssignment, number: int | None = None) -> Topic:
        """Create a topic and return it."""
        topic_id = build_id(len(self.envelopes) + 1_000_000 if number is None else number)
        self.accept(CreateTopic(topic_id, name, partitions or (build_assignment(1),), {}, 1234))
        return self.image.topics[name]

    def partition(self, name: str, number: int = 0) -> Partition:
        return self.image.topics[name].partitions[number]

    def replay(self) -> Image:
        """Return a second image with the same commands applied."""
        image = Image()
        for index, envelope in enumerate(self.envelopes, 1):
            apply(image, envelope, index)
        return image


def image_records(image: Image) -> tuple[object, ...]:
    """Return all records of an image except the sessions."""
    return (
        image.cluster_id,
        image.next_producer_id,
        dict(image.nodes),
        dict(image.brokers),
        dict(image.broker_configs),
        dict(image.features),
        dict(image.topics),
        dict(image.topics_by_id),
        dict(image.all_topics_by_id),
        dict(image.importing_topics),
        image.latest_import,
        dict(image.groups),
        dict(image.group_configs),
        {group_id: dict(image.offsets(group_id)) for group_id in image.iter_groups_with_offsets()},
        dict(image.transactions),
        image._staged.copy(),
        {name: dict(image.users.credentials(name)) for name in image.users.by_name},
        image.salt_secret,
        dict(image.acls),
        dict(image.quotas),
        registry_records(image),
    )


def registry_records(image: Image) -> tuple[object, ...]:
    """Return the records of the schema registry by their kind and key."""
    table = image.schemas
    return dict(table.schemas), dict(table.subjects), dict(table.settings), dict(table.contexts)


def encode_verified_snapshot(image: Image) -> list[bytes]:
    """Return the chunks of a snapshot, which also verifies the state hash."""
    return list(encode_snapshot(image.freeze()))


def assert_partition_invariants(partition: Partition, image: Image) -> None:
    """Check the invariants of a partition."""
    assert partition.replicas
    for members in (partition.replicas, partition.isr, partition.adding, partition.removing):
        assert len(set(members)) == len(members)
    assert set(partition.isr) <= set(partition.replicas)
    assert set(partition.adding) <= set(partition.replicas)
    assert set(partition.removing) <= set(partition.replicas) - set(partition.adding)
    assert partition.replicas == (*partition.target_replicas, *partition.removing)
    assert partition.original_replicas
    if partition.leader != NO_LEADER:
        assert partition.leader in partition.isr
        assert not image.brokers[partition.leader].is_fenced
    if partition.is_reassigning:
        assert not set(partition.target_replicas) <= set(partition.isr), "the reassignment should be completed"
