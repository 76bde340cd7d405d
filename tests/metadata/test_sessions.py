"""Exactly-once application of retried commands."""

from __future__ import annotations

from chronik.metadata.commands.cluster import AllocateProducerIds, RemoveNode
from chronik.metadata.commands.envelope import Envelope
from chronik.metadata.records import ApplyResult
from chronik.metadata.sessions import INCARNATIONS_REMEMBERED_MAX, RESULTS_KEPT_MAX
from chronik.metadata.snapshot import decode_snapshot
from chronik.protocol.errors import ErrorCode

from .metadata_world import MetadataWorld, build_id, encode_verified_snapshot

SENDER = 9


class Sender:
    """A node that sends commands, each of which allocates ten producer ids."""

    def __init__(self) -> None:
        self.world = MetadataWorld()
        self.epoch = self.world.register(1)

    def send(self, sequence: int, *, answered: int = 0, life: int = 1) -> ApplyResult:
        """Send a command that allocates ten producer ids if it is applied."""
        command = AllocateProducerIds(1, self.epoch, 10)
        return self.world.send(Envelope(SENDER, build_id(life), sequence, answered, command))

    @property
    def applied(self) -> int:
        return self.world.image.next_producer_id // 10


def test_duplicate_command_returns_first_result_and_changes_nothing() -> None:
    sender = Sender()
    first = sender.send(1)
    state = sender.world.image.state_hash
    assert sender.send(1) == first
    assert (sender.applied, sender.world.image.state_hash) == (1, state)
    assert not sender.world.delta


def test_duplicate_of_rejected_command_returns_rejection() -> None:
    world = MetadataWorld()
    envelope = Envelope(SENDER, build_id(1), 1, 0, RemoveNode(5))
    first = world.send(envelope)
    assert first.code is ErrorCode.VOTER_NOT_FOUND
    assert world.send(envelope) == first


def test_commands_of_a_node_may_arrive_out_of_order() -> None:
    sender = Sender()
    results = {sequence: sender.send(sequence) for sequence in (3, 1, 2, 5)}
    assert sender.applied == 4
    assert {sequence: sender.send(sequence) for sequence in (5, 3, 2, 1)} == results
    assert sender.applied == 4


def test_completed_results_are_dropped_and_not_applied_again() -> None:
    sender = Sender()
    for sequence in range(1, 11):
        sender.send(sequence)
    kept = sender.send(11, answered=8)
    session = sender.world.image.session(SENDER)
    assert session is not None
    assert sorted(session.results) == [9, 10, 11]
    assert sender.send(8).code is ErrorCode.REQUEST_TIMED_OUT
    assert sender.send(11) == kept
    assert sender.applied == 11


def test_results_of_sender_without_acknowledgements_are_limited() -> None:
    sender = Sender()
    for sequence in range(1, RESULTS_KEPT_MAX + 6):
        sender.send(sequence)
    session = sender.world.image.session(SENDER)
    assert session is not None
    assert len(session.results) == RESULTS_KEPT_MAX
    assert sender.send(1).code is ErrorCode.REQUEST_TIMED_OUT
    assert sender.applied == RESULTS_KEPT_MAX + 5
    encode_verified_snapshot(sender.world.image)


def test_new_incarnation_ends_sessions_of_earlier_ones() -> None:
    sender = Sender()
    sender.send(1, life=1)
    sender.send(1, life=2)
    assert sender.applied == 2
    late = sender.send(2, life=1)
    assert late.code is ErrorCode.STALE_BROKER_EPOCH
    sender.send(1, life=2)
    assert sender.applied == 2


def test_number_of_remembered_incarnations_is_limited() -> None:
    sender = Sender()
    for life in range(1, INCARNATIONS_REMEMBERED_MAX + 3):
        sender.send(1, life=life)
    session = sender.world.image.session(SENDER)
    assert session is not None
    assert len(session.past) == INCARNATIONS_REMEMBERED_MAX
    assert sender.send(2, life=2).code is ErrorCode.STALE_BROKER_EPOCH
    encode_verified_snapshot(sender.world.image)


def test_sessions_survive_a_snapshot() -> None:
    sender = Sender()
    sender.send(1, life=1)
    first = sender.send(1, life=2)
    sender.world.image = decode_snapshot(encode_verified_snapshot(sender.world.image))
    assert sender.send(1, life=2) == first
    assert sender.send(2, life=1).code is ErrorCode.STALE_BROKER_EPOCH
    assert sender.applied == 2
