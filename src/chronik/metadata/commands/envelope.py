"""Any command, with who sent it, and its form in the log."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from chronik.errors import ChronikError
from chronik.metadata.commands import (
    acls,
    brokers,
    cluster,
    groups,
    imports,
    partitions,
    quotas,
    topics,
    transactions,
    users,
)
from chronik.metadata.commands.base import BrokerId, Id
from chronik.metadata.levels import written

COMMAND_BYTES_MAX: Final = 16 * 1024 * 1024
"""Room for 3,000 topics of 30 partitions in one command; small enough to travel between nodes in one frame."""


class UnknownCommand(ChronikError):
    """A command in the log is of a kind or a shape that this version does not know: the node must stop."""


Command = (
    cluster.CreateCluster
    | cluster.AddNode
    | cluster.RemoveNode
    | cluster.UpdateNode
    | cluster.SetFeatureLevel
    | cluster.AllocateProducerIds
    | brokers.RegisterBroker
    | brokers.UpdateBrokerStatus
    | brokers.RemoveBroker
    | brokers.UpdateBrokerConfig
    | topics.CreateTopic
    | topics.CreateTopics
    | topics.DeleteTopic
    | topics.UpdateTopicConfig
    | topics.CreatePartitions
    | imports.BeginImport
    | imports.ImportTopics
    | imports.ImportGroups
    | imports.FinishImport
    | imports.GiveUpImport
    | partitions.AssignPartition
    | partitions.SetPartitionLeader
    | partitions.UpdateISR
    | partitions.UpdatePartitionOffset
    | partitions.ReassignPartitions
    | partitions.ElectLeaders
    | partitions.ReportLostRecords
    | groups.CreateConsumerGroup
    | groups.UpdateConsumerGroup
    | groups.DeleteConsumerGroup
    | groups.UpdateGroupConfig
    | groups.CommitOffset
    | groups.CommitOffsetBatch
    | groups.DeleteOffsets
    | groups.ExpireOffsets
    | transactions.InitTransaction
    | transactions.AddToTransaction
    | transactions.EndTransaction
    | transactions.CompleteTransaction
    | transactions.ExpireTransaction
    | transactions.StageOffsets
    | transactions.HoldCommits
    | transactions.ReleaseCommits
    | users.AlterScramUser
    | acls.CreateAcls
    | acls.DeleteAcls
    | quotas.AlterQuotas
)


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A command with its sender, so that a retried one is applied once.

    `incarnation` is one life (run) of the sending node, `sequence` counts its commands from 1. Every command of that
    life up to `answered` has been answered and will not come again: its result need not be kept.
    """

    node_id: BrokerId
    incarnation: Id
    sequence: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    answered: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    command: Command


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(Envelope)


def encode_command(envelope: Envelope) -> bytes:
    command = written(envelope.command)
    if command is envelope.command:
        return _encoder.encode(envelope)
    return _encoder.encode((*msgspec.structs.astuple(envelope)[:-1], command))


def decode_command(data: bytes | memoryview) -> Envelope:
    """Raises UnknownCommand for whatever this version does not fully understand."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownCommand(f"this version does not know the command: {error}") from error
