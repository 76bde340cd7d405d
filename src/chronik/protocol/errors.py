"""Kafka's error codes, and the exception that carries one out of a request handler.

An error is `retriable` if the same request may succeed later without any change, as Kafka's clients assume.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from chronik.errors import ChronikError

RETRY, FINAL = True, False


class ErrorCode(IntEnum):
    """An error code of the Kafka protocol; its value is the number on the wire."""

    value: int
    retriable: bool
    message: str

    if not TYPE_CHECKING:  # type checkers would confuse its arguments with those of the lookup `ErrorCode(3)`

        def __new__(cls, number: int, retriable: bool, message: str) -> ErrorCode:
            code = int.__new__(cls, number)
            code._value_ = number
            code.retriable = retriable
            code.message = message
            return code

    UNKNOWN_SERVER_ERROR = -1, FINAL, "The server encountered an unexpected error."
    NONE = 0, FINAL, "No error."
    OFFSET_OUT_OF_RANGE = 1, FINAL, "The offset is outside the range that the partition holds."
    CORRUPT_MESSAGE = 2, RETRY, "The records fail their checksum or are malformed."
    UNKNOWN_TOPIC_OR_PARTITION = 3, RETRY, "This server does not host the topic or partition."
    INVALID_FETCH_SIZE = 4, FINAL, "The fetch size is invalid."
    LEADER_NOT_AVAILABLE = 5, RETRY, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, RETRY, "This broker is not the leader or a replica of the partition."
    REQUEST_TIMED_OUT = 7, RETRY, "The request timed out; its outcome is unknown."
    BROKER_NOT_AVAILABLE = 8, FINAL, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, RETRY, "The replica is not available."
    MESSAGE_TOO_LARGE = 10, FINAL, "The records are larger than the topic accepts."
    STALE_CONTROLLER_EPOCH = 11, FINAL, "The controller has moved to another node."
    OFFSET_METADATA_TOO_LARGE = 12, FINAL, "The metadata of the committed offset is too large."
    NETWORK_EXCEPTION = 13, RETRY, "The connection was lost before a response arrived."
    COORDINATOR_LOAD_IN_PROGRESS = 14, RETRY, "The coordinator is still loading."
    COORDINATOR_NOT_AVAILABLE = 15, RETRY, "The coordinator is not available."
    NOT_COORDINATOR = 16, RETRY, "This broker is not the coordinator."
    INVALID_TOPIC_EXCEPTION = 17, FINAL, "The topic name is invalid or the topic does not allow this."
    RECORD_LIST_TOO_LARGE = 18, FINAL, "The batch is larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, RETRY, "Fewer replicas are in sync than required; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, RETRY, "Written, but to fewer in-sync replicas than required."
    INVALID_REQUIRED_ACKS = 21, FINAL, "Acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, FINAL, "The group generation is not the current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, FINAL, "The member's protocols do not fit those of the group."
    INVALID_GROUP_ID = 24, FINAL, "The group id is invalid."
    UNKNOWN_MEMBER_ID = 25, FINAL, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, FINAL, "The session timeout is outside the allowed range."
    REBALANCE_IN_PROGRESS = 27, FINAL, "The group is rebalancing: rejoin."
    INVALID_COMMIT_OFFSET_SIZE = 28, FINAL, "The offset commit is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, FINAL, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, FINAL, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, FINAL, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, FINAL, "The timestamp is outside the range the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, FINAL, "The SASL mechanism is not supported."
    ILLEGAL_SASL_STATE = 34, FINAL, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, FINAL, "This version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, FINAL, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, FINAL, "The number of partitions is invalid."
    INVALID_REPLICATION_FACTOR = 38, FINAL, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, FINAL, "The replica assignment is invalid."
    INVALID_CONFIG = 40, FINAL, "The configuration is invalid."
    NOT_CONTROLLER = 41, RETRY, "This node is not the controller."
    INVALID_REQUEST = 42, FINAL, "The request is malformed or contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, FINAL, "The message format does not support the request."
    POLICY_VIOLATION = 44, FINAL, "The request violates a policy of the cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, FINAL, "The producer's sequence number leaves a gap."
    DUPLICATE_SEQUENCE_NUMBER = 46, FINAL, "The producer's sequence number was written before."
    INVALID_PRODUCER_EPOCH = 47, FINAL, "The producer's epoch is old."
    INVALID_TXN_STATE = 48, FINAL, "The transaction's state does not allow this."
    INVALID_PRODUCER_ID_MAPPING = 49, FINAL, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, FINAL, "The transaction timeout is larger than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, RETRY, "Another operation on the same transaction is in progress."
    TRANSACTION_COORDINATOR_FENCED = 52, FINAL, "The transaction coordinator is no longer the current one."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, FINAL, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, FINAL, "Security features are disabled."
    OPERATION_NOT_ATTEMPTED = 55, FINAL, "Not attempted, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, RETRY, "The broker's disk failed, or has lost the partition."
    LOG_DIR_NOT_FOUND = 57, FINAL, "The log directory is not configured."
    SASL_AUTHENTICATION_FAILED = 58, FINAL, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, FINAL, "The broker holds no state of this producer."
    REASSIGNMENT_IN_PROGRESS = 60, FINAL, "A partition reassignment is in progress."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, FINAL, "Delegation tokens are disabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, FINAL, "The delegation token does not exist."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, FINAL, "The principal does not own the delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, FINAL, "Delegation tokens are not available on this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, FINAL, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, FINAL, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, FINAL, "The principal's type is not supported."
    NON_EMPTY_GROUP = 68, FINAL, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, FINAL, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, RETRY, "The fetch session does not exist."
    INVALID_FETCH_SESSION_EPOCH = 71, RETRY, "The epoch of the fetch session is not the expected one."
    LISTENER_NOT_FOUND = 72, RETRY, "The leader has no listener that matches this one."
    TOPIC_DELETION_DISABLED = 73, FINAL, "Deleting topics is disabled."
    FENCED_LEADER_EPOCH = 74, RETRY, "The leader epoch in the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, RETRY, "The leader epoch in the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, FINAL, "The client cannot be served this compression type."
    STALE_BROKER_EPOCH = 77, FINAL, "The broker's epoch is old."
    OFFSET_NOT_AVAILABLE = 78, RETRY, "The new leader's high watermark has not caught up yet."
    MEMBER_ID_REQUIRED = 79, FINAL, "Join again with the member id that was given."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, RETRY, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, FINAL, "The group is full."
    FENCED_INSTANCE_ID = 82, FINAL, "Another member has taken over this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, RETRY, "No eligible leader is available."
    ELECTION_NOT_NEEDED = 84, RETRY, "The partition has the wanted leader already."
    NO_REASSIGNMENT_IN_PROGRESS = 85, FINAL, "No reassignment of the partition is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, FINAL, "The group is subscribed to the topic, so its offsets cannot be deleted."
    INVALID_RECORD = 87, FINAL, "A record was rejected."
    UNSTABLE_OFFSET_COMMIT = 88, RETRY, "Offsets of a pending transaction are not final yet."
    THROTTLING_QUOTA_EXCEEDED = 89, RETRY, "A quota is exceeded."
    PRODUCER_FENCED = 90, FINAL, "A newer producer uses the same transactional id."
    RESOURCE_NOT_FOUND = 91, FINAL, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, FINAL, "The resource is named more than once."
    UNACCEPTABLE_CREDENTIAL = 93, FINAL, "The credential does not meet the criteria."
    INCONSISTENT_VOTER_SET = 94, FINAL, "The voters named differ from the ones known."
    INVALID_UPDATE_VERSION = 95, FINAL, "The version of the update is invalid."
    FEATURE_UPDATE_FAILED = 96, FINAL, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, FINAL, "The forwarded principal cannot be read."
    SNAPSHOT_NOT_FOUND = 98, FINAL, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, FINAL, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, RETRY, "This server does not know the topic id."
    DUPLICATE_BROKER_REGISTRATION = 101, FINAL, "Another live broker has this id."
    BROKER_ID_NOT_REGISTERED = 102, FINAL, "The broker is not registered."
    INCONSISTENT_TOPIC_ID = 103, RETRY, "The topic id does not match the one in the log."
    INCONSISTENT_CLUSTER_ID = 104, FINAL, "The cluster id is another cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, FINAL, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, RETRY, "The fetch session mixes topic ids and names."
    INELIGIBLE_REPLICA = 107, FINAL, "The replica may not join the in-sync replicas."
    NEW_LEADER_ELECTED = 108, FINAL, "The change elected another leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, FINAL, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, FINAL, "The coordinator fenced the member: release all partitions and rejoin."
    UNRELEASED_INSTANCE_ID = 111, FINAL, "Another member still uses this group instance id."
    UNSUPPORTED_ASSIGNOR = 112, FINAL, "The group does not support the assignor."
    STALE_MEMBER_EPOCH = 113, FINAL, "The member's epoch is old: retry with the current one."
    MISMATCHED_ENDPOINT_TYPE = 114, FINAL, "The request was sent to the wrong type of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, FINAL, "This type of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, FINAL, "The controller id is not known."
    UNKNOWN_SUBSCRIPTION_ID = 117, FINAL, "The telemetry subscription is not the current one."
    TELEMETRY_TOO_LARGE = 118, FINAL, "The pushed telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, FINAL, "The controller rejected the broker's registration."
    TRANSACTION_ABORTABLE = 120, FINAL, "The transaction failed and has to be aborted."
    INVALID_RECORD_STATE = 121, FINAL, "The record's state does not allow this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, RETRY, "The share session does not exist."
    INVALID_SHARE_SESSION_EPOCH = 123, RETRY, "The epoch of the share session is not the expected one."
    FENCED_STATE_EPOCH = 124, FINAL, "The state epoch is not the current one."
    INVALID_VOTER_KEY = 125, FINAL, "The voter's id and directory do not match a voter."
    DUPLICATE_VOTER = 126, FINAL, "The voter is part of the voters already."
    VOTER_NOT_FOUND = 127, FINAL, "The voter is not part of the voters."
    INVALID_REGULAR_EXPRESSION = 128, FINAL, "The regular expression is invalid."
    REBOOTSTRAP_REQUIRED = 129, FINAL, "The client has to bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, FINAL, "The topology is invalid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, FINAL, "The epoch of the topology is invalid."
    STREAMS_TOPOLOGY_FENCED = 132, FINAL, "The epoch of the topology is old."
    SHARE_SESSION_LIMIT_REACHED = 133, RETRY, "The broker holds no more share sessions."


MESSAGE_CHARACTERS_MAX: Final = 1000
"""The maximum length of an error message in a response, in characters.

A message may contain a name from the request, which may have up to 32,767 bytes.
"""


class KafkaError(ChronikError):
    """An error that a client receives as an error code and, if the API has a field for it, an error message."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)  # both arguments, so that copying and pickling preserve the code
        self.code = code
        message = code.message if message is None else message
        self.message = message if len(message) <= MESSAGE_CHARACTERS_MAX else f"{message[:MESSAGE_CHARACTERS_MAX]}…"

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    def without_traceback(self) -> KafkaError:
        """Return the error without its traceback, so that storing the error retains no stack frames.

        An exception references the frames it was raised through, and these may reference the object that keeps it. Such
        a cycle would be freed only by the garbage collector.
        """
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


class CorruptRecords(KafkaError):
    """Records that do not match their checksum or violate the record format."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)
        self.args = (message,)


class InvalidRecord(KafkaError):
    """Well-formed records that the broker or the topic does not accept."""

    def __init__(self, message: str, indexes: tuple[int, ...] = (), reasons: tuple[str, ...] = ()) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.args = (message, indexes, reasons)
        self.record_indexes = indexes
        """The indexes of the invalid records in the batch, or an empty tuple if the batch itself is invalid."""
        self.record_reasons = reasons
        """The reason for each of `record_indexes`, or an empty tuple if the message applies to all of them."""

    @classmethod
    def from_reasons(cls, reasons: Mapping[int, str]) -> InvalidRecord:
        """Return the error for records that are invalid for different reasons, given by the index of the record."""
        index, reason = next(iter(reasons.items()))
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return cls(f"record {index} is invalid: {reason}{more}", tuple(reasons), tuple(reasons.values()))


class RecordsTooLarge(KafkaError):
    """Records whose decompressed size exceeds the decompression budget."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)
        self.args = (message,)
