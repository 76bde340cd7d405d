"""The union of all metadata commands, and the envelope that identifies a command's sender in the metadata log."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from chronik.errors import ChronikError
from chronik.metadata.commands import (
    brokers,
    cluster,
    groups,
    imports,
    partitions,
    schemas,
    security,
    topics,
    transactions,
)
from chronik.metadata.commands.base import BrokerId, UuidBytes
from chronik.metadata.levels import omit_default_fields

COMMAND_BYTES_MAX: Final = 16 * 1024 * 1024
"""The maximum size of an encoded metadata command in bytes, enough to create 3,000 topics with 30 partitions each."""


class UnknownCommandError(ChronikError):
    """An entry of the metadata log that this version cannot decode. The node must stop."""


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
    | imports.AbortImport
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
    | security.AlterScramUser
    | security.CreateAcls
    | security.DeleteAcls
    | security.AlterQuotas
    | schemas.RegisterSchema
    | schemas.DeleteSchemaVersions
    | schemas.SetSchemaConfig
    | schemas.SetSchemaMode
    | schemas.SetSchemaContext
)


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A metadata command with its sender's node id and a sequence number, by which a retried command is detected.

    `incarnation` identifies one run of the sending node, `sequence` counts the commands of that run from 1. All
    commands up to `answered` have completed and will not be retried, so their results need not be kept.
    """

    node_id: BrokerId
    incarnation: UuidBytes
    sequence: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    answered: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    command: Command


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(Envelope)


def encode_command(envelope: Envelope) -> bytes:
    """Encode a command for the metadata log. Fields that were added later are omitted if they have default values."""
    command = omit_default_fields(envelope.command)
    if command is envelope.command:
        return _encoder.encode(envelope)
    return _encoder.encode((*msgspec.structs.astuple(envelope)[:-1], command))


def decode_command(data: bytes | memoryview) -> Envelope:
    """Decode an entry of the metadata log: a command with its sender and sequence number.

    Raises:
        UnknownCommandError: This version does not know the command or one of its fields.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownCommandError(f"this version cannot decode the command: {error}") from error
