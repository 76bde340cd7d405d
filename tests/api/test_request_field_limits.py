"""Size limits of request fields: every string, bytes or array field of every request is in exactly one table.

`LIMITED` names the limit of a field whose value a node stores in memory or in the metadata log, with a request that
reaches the limit. `WITHOUT_LIMIT` gives the reason why a field needs none. A new field in neither table fails the first
test.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pytest

from chronik.groups.classic.members import estimate_protocols_size
from chronik.groups.config import GroupConfig
from chronik.ids import generate_id
from chronik.limits import CLIENT_ID_CHARACTERS_MAX, PRODUCER_IDS_PER_CLIENT_MAX, PRODUCER_IDS_PER_SECOND
from chronik.metadata.commands.schemas import ANY_REVISION, RegisterSchema, encode_importable_command
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.metadata.offsets import OFFSET_BYTES
from chronik.protocol.apis import APIS
from chronik.protocol.codec import REQUESTS
from chronik.protocol.errors import ErrorCode
from chronik.protocol.schema import Response, Struct
from chronik.security.quotas.token_buckets import ClientRateLimiter
from chronik.testing.ports import HOST, ReservedPorts
from tests.api.authorizing_node import AuthorizingNode, build_request, error_codes_in, send_request
from tests.api.request_builders import batch
from tests.raw import RawClient

TOPIC: Final = "limited"
SMALL_TOPIC: Final = "small"
SMALL_BYTES: Final = 1000
STRING_CHARACTERS_MAX: Final = 32_767
PARTITIONS: Final = 4
BROKER_RESOURCE, TOPIC_RESOURCE, GROUP_RESOURCE = 4, 2, 32
THROTTLES: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Two topic configs whose values may have any length."""

RequestValues = dict[str, Any]
RequestFactory = Callable[[RawClient, int], RequestValues]
"""Builds a request whose field has the given size, after sending requests that must precede it."""


class Limit(NamedTuple):
    """A limit of a request field, and how to reach it."""

    constant: str
    """Qualified name of the limit; "brokers" for the number of brokers, which is one here."""
    code: ErrorCode
    build_values: RequestFactory
    version: int = -1
    """API version of the request; -1 is the latest."""
    lowered_to: int | None = None
    """A small substitute for a limit that takes long to reach."""
    lowered_in: str = ""
    """The module that reads the lowered limit, if not the one that declares it."""
    only_above: bool = False
    """Whether a request at the limit would make later cases fail."""

    @property
    def maximum(self) -> int:
        if self.lowered_to is not None:
            return self.lowered_to
        if self.constant == "brokers":
            return 1
        if self.constant == "offset.metadata.max.bytes":
            return GroupConfig().offset_metadata_characters_max
        if self.constant == "max.message.bytes":
            return SMALL_BYTES
        module, _, name = self.constant.rpartition(".")
        value: int = getattr(importlib.import_module(module), name)
        return value


def text(size: int) -> str:
    """Return a unique name of that length."""
    unique = generate_id().hex()
    return unique[:size] + "x" * (size - len(unique))


# Preceding requests


def new_transaction(client: RawClient) -> RequestValues:
    """Start a transaction, and return the fields that identify it."""
    name = text(40)
    given = send_request(client, "InitProducerId", 4, transactional_id=name, transaction_timeout_ms=60_000)
    assert given.error_code == 0, ErrorCode(given.error_code)
    return {"transactional_id": name, "producer_id": given.producer_id, "producer_epoch": given.producer_epoch}


def staged_commit(client: RawClient, partitions: int, metadata: str = "") -> RequestValues:
    """Start a transaction that contains a group, and return an offset commit of that group."""
    producer, group = new_transaction(client), text(40)
    assert not error_codes_in(send_request(client, "AddOffsetsToTxn", 3, group_id=group, **producer))
    return {**producer, **commit(group, partitions, metadata)}


def new_import(client: RawClient) -> bytes:
    """Start an import after aborting the previous one."""
    client.request(build_request("AlterImport", {"import_id": IMPORTS[-1], "action": 3}), 0, Response)
    IMPORTS.append(generate_id())
    begun = send_request(client, "AlterImport", 0, import_id=IMPORTS[-1], action=0, source="a test")
    assert begun.error_code == 0, begun.error_message
    return IMPORTS[-1]


IMPORTS: Final = [generate_id()]


def only_member(client: RawClient) -> RequestValues:
    """Join a new group, and return the fields that identify its only member."""
    group = text(40)
    joined = send_request(client, "JoinGroup", 3, **join(group_id=group))
    assert joined.error_code == 0, ErrorCode(joined.error_code)
    return {"group_id": group, "member_id": joined.member_id, "generation_id": joined.generation_id}


# Requests


def join(**fields: Any) -> RequestValues:
    return {
        "group_id": text(40),
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        **fields,
    }


def metadata_of(size: int) -> bytes:
    """Return metadata with which the protocol `range` has that size within the limit of its member."""
    return bytes(size - estimate_protocols_size((("range", b""),)))


def commit(group: str, partitions: int = 1, metadata: str = "") -> RequestValues:
    """Return the fields that OffsetCommit and TxnOffsetCommit have in common."""
    offsets = [{"partition_index": n, "committed_offset": 0, "committed_metadata": metadata} for n in range(partitions)]
    return {"group_id": group, "topics": [{"name": TOPIC, "partitions": offsets}]}


def records_of(size: int) -> bytes:
    """Return a batch of that many bytes."""
    made = batch(bytes(size - len(batch(bytes(500))) + 500))
    assert len(made) == size
    return made


def produce(size: int) -> RequestValues:
    data = [{"name": SMALL_TOPIC, "partition_data": [{"index": 0, "records": records_of(size)}]}]
    return {"acks": -1, "timeout_ms": 10_000, "topic_data": data}


def create(name: str | None = None, **fields: Any) -> RequestValues:
    fields = {"num_partitions": 1, "replication_factor": 1, **fields}
    return {"topics": [{"name": name or text(40), **fields}], "validate_only": True, "timeout_ms": 10_000}


def create_with_assignments(*replicas: list[int]) -> RequestValues:
    assignments = [{"partition_index": index, "broker_ids": each} for index, each in enumerate(replicas)]
    return create(num_partitions=-1, replication_factor=-1, assignments=assignments)


def throttles(size: int) -> list[RequestValues]:
    """Return topic configs whose names and values have that many characters in total."""
    size -= sum(map(len, THROTTLES))
    first = min(size, STRING_CHARACTERS_MAX)
    return [
        {"name": name, "value": "*".ljust(each)} for name, each in zip(THROTTLES, (first, size - first), strict=True)
    ]


def config(size: int, name: str = "value") -> list[RequestValues]:
    """Return broker configs whose names and values have that many characters in total."""
    names = [f"{name}{number}" for number in range(3)]
    left, configs = size - sum(map(len, names)), []
    for each in names:
        configs.append({"name": each, "value": "v" * min(left, STRING_CHARACTERS_MAX)})
        left -= min(left, STRING_CHARACTERS_MAX)
    return configs


def alter(kind: int, name: str, configs: list[RequestValues]) -> RequestValues:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": configs}], "validate_only": False}


def alter_group(name: str) -> RequestValues:
    return alter(GROUP_RESOURCE, name, [{"name": "consumer.session.timeout.ms", "value": "50000"}])


def acl(**fields: Any) -> RequestValues:
    names = {"resource_type": 2, "resource_name": text(40), "principal": "User:somebody", "host": "*"}
    return {"creations": [{**names, "resource_pattern_type": 3, "operation": 3, "permission_type": 3, **fields}]}


def upsert(**fields: Any) -> RequestValues:
    user = {"name": text(40), "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    return {"upsertions": [{**user, **fields}]}


def quota(name: str) -> RequestValues:
    entity = [{"entity_type": "user", "entity_name": name}]
    return {"entries": [{"entity": entity, "ops": [{"key": "producer_byte_rate", "value": 1e6}]}]}


def quotas(count: int) -> RequestValues:
    return {"entries": [quota(f"user-{number}")["entries"][0] for number in range(count)], "validate_only": True}


def import_topic(client: RawClient, **fields: Any) -> RequestValues:
    topic = {"topic_id": generate_id(), "name": text(40), "replication_factor": 1, "leader_epochs": [0], **fields}
    return {"import_id": new_import(client), "action": 1, "topics": [topic]}


def finish(client: RawClient, **fields: Any) -> RequestValues:
    return {"import_id": new_import(client), "action": 2, **fields}


def import_group(client: RawClient, **fields: Any) -> RequestValues:
    return finish(client, groups=[{"group_id": text(40), "protocol_type": "consumer", **fields}])


def import_metadata(client: RawClient, size: int) -> RequestValues:
    """Import a topic, and return a request with a committed offset whose metadata has that size."""
    import_id, topic = generate_id(), text(40)
    client.request(build_request("AlterImport", {"import_id": IMPORTS[-1], "action": 3}), 0, Response)
    IMPORTS.append(import_id)
    assert not error_codes_in(
        send_request(client, "AlterImport", 0, import_id=import_id, action=0, source="a test", topic_count=1)
    )
    made = {"topic_id": generate_id(), "name": topic, "replication_factor": 1, "leader_epochs": [0]}
    assert not error_codes_in(send_request(client, "AlterImport", 0, import_id=import_id, action=1, topics=[made]))
    offsets = [{"topic": topic, "partition": 0, "offset": 0, "metadata": "m" * size}]
    group = {"group_id": text(40), "protocol_type": "consumer", "offsets": offsets}
    return {"import_id": import_id, "action": 2, "groups": [group]}


def import_security(client: RawClient, **fields: Any) -> RequestValues:
    return {"import_id": new_import(client), **fields}


def import_user(client: RawClient, name: str | None = None, **fields: Any) -> RequestValues:
    keys = {
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"s",
        "stored_key": bytes(32),
        "server_key": bytes(32),
        **fields,
    }
    return import_security(client, users=[{"name": name or text(40), "keys": [keys]}])


def import_acl(client: RawClient, **fields: Any) -> RequestValues:
    names = {"resource_type": 2, "name": text(40), "principal": "User:somebody", "host": "*"}
    return import_security(client, acls=[{**names, "pattern_type": 3, "operation": 3, "permission": 3, **fields}])


def import_quota(client: RawClient, name: str) -> RequestValues:
    values = [{"key": "producer_byte_rate", "value": 1e6}]
    return import_security(client, quotas=[{"entity": [{"kind": "user", "name": name}], "values": values}])


def import_subject(client: RawClient, name: str) -> RequestValues:
    """Return a request that registers a schema under a subject. Its other fields are tested with the commands."""
    command = RegisterSchema(name, 1, '"int"', (), "", bytes(16), (), ANY_REVISION, (), 0)
    return {"import_id": new_import(client), "commands": [{"data": encode_importable_command(command)}]}


# Tables

LIMITS: Final = "chronik.limits."
GROUPS: Final = "chronik.groups.config."
CONFIGS: Final = "chronik.metadata.handlers.configs."
INVALID: Final = ErrorCode.INVALID_REQUEST
BAD_GROUP: Final = ErrorCode.INVALID_GROUP_ID
BAD_CONFIG: Final = ErrorCode.INVALID_CONFIG
BAD_REPLICAS: Final = ErrorCode.INVALID_REPLICA_ASSIGNMENT
BAD_CREDENTIAL: Final = ErrorCode.UNACCEPTABLE_CREDENTIAL
BAD_TOPIC: Final = ErrorCode.INVALID_TOPIC_EXCEPTION
TOO_MANY: Final = ErrorCode.POLICY_VIOLATION

TOPIC_NAME: Final = LIMITS + "TOPIC_NAME_CHARACTERS_MAX"
GROUP_ID: Final = LIMITS + "GROUP_ID_CHARACTERS_MAX"
ACL_NAME: Final = LIMITS + "ACL_NAME_CHARACTERS_MAX"
USER_NAME: Final = "chronik.metadata.handlers.security.USER_NAME_CHARACTERS_MAX"
SALT: Final = "chronik.admin.users.SALT_BYTES_MAX"
CONFIG_NAME: Final = LIMITS + "CONFIG_NAME_CHARACTERS_MAX"
CONFIG_TEXT: Final = CONFIGS + "CONFIG_CHARACTERS_MAX"
CONFIG_KEYS: Final = CONFIGS + "CONFIG_KEYS_MAX"
METADATA: Final = "offset.metadata.max.bytes"
PER_REQUEST: Final = LIMITS + "PARTITIONS_PER_REQUEST_MAX"
PLANS: Final = "chronik.admin.topic_planner"

LIMITED: Final[dict[str, Limit]] = {
    "Produce.topic_data[].partition_data[].records": Limit(
        "max.message.bytes", ErrorCode.MESSAGE_TOO_LARGE, lambda _, size: produce(size), 9
    ),
    "Metadata.topics[].name": Limit(
        TOPIC_NAME,
        BAD_TOPIC,
        lambda _, size: {"topics": [{"name": text(size)}], "allow_auto_topic_creation": True},
    ),
    "OffsetCommit.group_id": Limit(GROUP_ID, BAD_GROUP, lambda _, size: commit(text(size)), 9),
    "OffsetCommit.topics[].partitions[]": Limit(
        GROUPS + "GROUP_OFFSETS_BYTES_MAX",
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        lambda _, size: commit(text(40), size // OFFSET_BYTES + bool(size % OFFSET_BYTES)),
        9,
        lowered_to=OFFSET_BYTES * (PARTITIONS - 1),
        lowered_in="chronik.groups.offsets",
    ),
    "OffsetCommit.topics[].partitions[].committed_metadata": Limit(
        METADATA, ErrorCode.OFFSET_METADATA_TOO_LARGE, lambda _, size: commit(text(40), 1, "m" * size), 9
    ),
    "FindCoordinator.key": Limit(GROUP_ID, BAD_GROUP, lambda _, size: {"key": text(size)}, 3),
    "FindCoordinator.coordinator_keys[]": Limit(
        LIMITS + "TRANSACTIONAL_ID_CHARACTERS_MAX",
        INVALID,
        lambda _, size: {"coordinator_keys": [text(size)], "key_type": 1},
    ),
    "JoinGroup.group_id": Limit(GROUP_ID, BAD_GROUP, lambda _, size: join(group_id=text(size))),
    "JoinGroup.group_instance_id": Limit(
        LIMITS + "GROUP_INSTANCE_ID_CHARACTERS_MAX", INVALID, lambda _, size: join(group_instance_id=text(size))
    ),
    "JoinGroup.protocol_type": Limit(
        LIMITS + "GROUP_PROTOCOL_CHARACTERS_MAX", INVALID, lambda _, size: join(protocol_type=text(size))
    ),
    "JoinGroup.protocols[]": Limit(
        LIMITS + "GROUP_PROTOCOLS_MAX",
        INVALID,
        lambda _, size: join(protocols=[{"name": f"p{number}", "metadata": b""} for number in range(size)]),
    ),
    "JoinGroup.protocols[].name": Limit(
        LIMITS + "GROUP_PROTOCOL_CHARACTERS_MAX",
        INVALID,
        lambda _, size: join(protocols=[{"name": text(size), "metadata": b""}]),
    ),
    "JoinGroup.protocols[].metadata": Limit(
        GROUPS + "MEMBER_BYTES_MAX",
        INVALID,
        lambda _, size: join(protocols=[{"name": "range", "metadata": metadata_of(size)}]),
    ),
    "SyncGroup.assignments[].assignment": Limit(
        GROUPS + "GROUP_BYTES_MAX",
        ErrorCode.UNKNOWN_SERVER_ERROR,
        lambda client, size: (
            member := only_member(client),
            {
                **member,
                "assignments": [
                    {
                        "member_id": member["member_id"],
                        "assignment": bytes(size - estimate_protocols_size((("range", b"m"),))),
                    }
                ],
            },
        )[1],
        3,
        lowered_to=2000,
        lowered_in="chronik.groups.classic.rebalance",
    ),
    "ApiVersions.client_software_name": Limit(
        LIMITS + "CLIENT_SOFTWARE_CHARACTERS_MAX",
        INVALID,
        lambda _, size: {"client_software_name": text(size), "client_software_version": "1"},
        3,
    ),
    "ApiVersions.client_software_version": Limit(
        LIMITS + "CLIENT_SOFTWARE_CHARACTERS_MAX",
        INVALID,
        lambda _, size: {"client_software_name": "test", "client_software_version": text(size)},
        3,
    ),
    "CreateTopics.topics[]": Limit(
        PER_REQUEST,
        TOO_MANY,
        lambda _, size: {**create(), "topics": [create()["topics"][0] for _ in range(size)]},
        lowered_to=2,
        lowered_in=PLANS,
    ),
    "CreateTopics.topics[].name": Limit(TOPIC_NAME, BAD_TOPIC, lambda _, size: create(text(size))),
    "CreateTopics.topics[].assignments[]": Limit(
        PER_REQUEST, TOO_MANY, lambda _, size: create_with_assignments(*[[1]] * size), lowered_to=2, lowered_in=PLANS
    ),
    "CreateTopics.topics[].assignments[].broker_ids[]": Limit(
        "brokers", BAD_REPLICAS, lambda _, size: create_with_assignments([1] * size)
    ),
    "CreateTopics.topics[].configs[].value": Limit(
        CONFIG_TEXT, BAD_CONFIG, lambda _, size: {**create(configs=throttles(size)), "validate_only": False}
    ),
    "InitProducerId.transactional_id": Limit(
        LIMITS + "TRANSACTIONAL_ID_CHARACTERS_MAX",
        INVALID,
        lambda _, size: {"transactional_id": text(size), "transaction_timeout_ms": 60_000},
    ),
    "AddPartitionsToTxn.topics[].partitions[]": Limit(
        "chronik.transactions.config.PARTITIONS_PER_TRANSACTION_MAX",
        INVALID,
        lambda client, size: {
            **new_transaction(client),
            "topics": [{"name": TOPIC, "partitions": list(range(size))}],
        },
        3,
        lowered_to=2,
        lowered_in="chronik.transactions.decisions",
    ),
    "AddPartitionsToTxn.transactions[].topics[].partitions[]": Limit(
        "chronik.transactions.config.PARTITIONS_PER_TRANSACTION_MAX",
        INVALID,
        lambda client, size: {
            "transactions": [
                {**new_transaction(client), "topics": [{"name": TOPIC, "partitions": list(range(size))}]},
            ]
        },
        lowered_to=2,
        lowered_in="chronik.transactions.decisions",
    ),
    "AddOffsetsToTxn.group_id": Limit(
        GROUP_ID, BAD_GROUP, lambda client, size: {**new_transaction(client), "group_id": text(size)}
    ),
    "TxnOffsetCommit.group_id": Limit(
        GROUP_ID,
        BAD_GROUP,
        lambda client, size: {**new_transaction(client), **commit(text(size))},
    ),
    "TxnOffsetCommit.topics[].partitions[]": Limit(
        GROUPS + "STAGED_OFFSETS_MAX",
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        lambda client, size: staged_commit(client, size),
        4,
        lowered_to=0,
        lowered_in="chronik.groups.offsets",
        only_above=True,
    ),
    "TxnOffsetCommit.topics[].partitions[].committed_metadata": Limit(
        METADATA,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        lambda client, size: staged_commit(client, 1, "m" * size),
        4,
    ),
    "CreateAcls.creations[]": Limit(
        LIMITS + "ACLS_PER_REQUEST_MAX",
        TOO_MANY,
        lambda _, size: {"creations": acl()["creations"] * size},
        lowered_to=2,
        lowered_in="chronik.admin.acls",
    ),
    "CreateAcls.creations[].resource_name": Limit(ACL_NAME, INVALID, lambda _, size: acl(resource_name=text(size))),
    "CreateAcls.creations[].principal": Limit(
        ACL_NAME, INVALID, lambda _, size: acl(principal="User:" + text(size - len("User:")))
    ),
    "CreateAcls.creations[].host": Limit(ACL_NAME, INVALID, lambda _, size: acl(host=text(size))),
    "CreatePartitions.topics[].assignments[]": Limit(
        LIMITS + "TOPIC_PARTITIONS_MAX",
        ErrorCode.INVALID_PARTITIONS,
        lambda _, size: {
            "topics": [
                {"name": TOPIC, "count": size, "assignments": [{"broker_ids": [1]}] * (size - PARTITIONS)},
            ],
            "timeout_ms": 10_000,
            "validate_only": True,
        },
        lowered_to=PARTITIONS + 1,
        lowered_in=PLANS,
    ),
    "CreatePartitions.topics[].assignments[].broker_ids[]": Limit(
        "brokers",
        BAD_REPLICAS,
        lambda _, size: {
            "topics": [{"name": TOPIC, "count": PARTITIONS + 1, "assignments": [{"broker_ids": [1] * size}]}],
            "timeout_ms": 10_000,
            "validate_only": True,
        },
    ),
    "AlterPartitionReassignments.topics[].partitions[].replicas[]": Limit(
        LIMITS + "CLUSTER_MEMBERS_MAX",
        BAD_REPLICAS,
        lambda _, size: {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": list(range(size))}]}],
            "timeout_ms": 10_000,
        },
        only_above=True,
    ),
    "AlterClientQuotas.entries[]": Limit(LIMITS + "QUOTA_ALTERATIONS_MAX", INVALID, lambda _, size: quotas(size)),
    "AlterClientQuotas.entries[].entity[].entity_name": Limit(
        LIMITS + "QUOTA_NAME_CHARACTERS_MAX", INVALID, lambda _, size: quota(text(size))
    ),
    "AlterUserScramCredentials.deletions[].name": Limit(
        USER_NAME, BAD_CREDENTIAL, lambda _, size: {"deletions": [{"name": text(size), "mechanism": 1}]}
    ),
    "AlterUserScramCredentials.upsertions[].name": Limit(
        USER_NAME, BAD_CREDENTIAL, lambda _, size: upsert(name=text(size))
    ),
    "AlterUserScramCredentials.upsertions[].salt": Limit(
        SALT, BAD_CREDENTIAL, lambda _, size: upsert(salt=bytes(size))
    ),
    "AlterUserScramCredentials.upsertions[].salted_password": Limit(
        SALT, BAD_CREDENTIAL, lambda _, size: upsert(salted_password=bytes(size))
    ),
    "AddRaftVoter.listeners[].host": Limit(
        LIMITS + "HOST_CHARACTERS_MAX",
        INVALID,
        lambda _, size: {
            "cluster_id": None,
            "voter_id": 7,
            "timeout_ms": 10_000,
            "listeners": [{"name": "PEER", "host": text(size), "port": 1}],
        },
        only_above=True,
    ),
    "AlterNodes.changes[].host": Limit(
        LIMITS + "HOST_CHARACTERS_MAX",
        INVALID,
        lambda _, size: {
            "changes": [{"node_id": 7, "action": 0, "host": text(size), "port": 1}],
            "validate_only": True,
        },
    ),
    "AlterImport.source": Limit(
        LIMITS + "IMPORT_SOURCE_CHARACTERS_MAX",
        INVALID,
        lambda client, size: {"import_id": new_import(client), "action": 0, "source": text(size)},
    ),
    "AlterImport.topics[].name": Limit(
        TOPIC_NAME, BAD_TOPIC, lambda client, size: import_topic(client, name=text(size))
    ),
    "AlterImport.topics[].leader_epochs[]": Limit(
        LIMITS + "TOPIC_PARTITIONS_MAX",
        ErrorCode.INVALID_PARTITIONS,
        lambda client, size: import_topic(client, leader_epochs=[0] * size),
        lowered_to=2,
        lowered_in=PLANS,
    ),
    "AlterImport.topics[].configs[].value": Limit(
        CONFIG_TEXT, BAD_CONFIG, lambda client, size: import_topic(client, configs=throttles(size))
    ),
    "AlterImport.groups[]": Limit(
        GROUPS + "GROUPS_MAX",
        TOO_MANY,
        lambda client, size: finish(client, groups=[{"group_id": text(40), "protocol_type": ""}] * size),
        lowered_to=0,
        lowered_in="chronik.admin.topic_import",
        only_above=True,
    ),
    "AlterImport.groups[].group_id": Limit(
        GROUP_ID, BAD_GROUP, lambda client, size: import_group(client, group_id=text(size))
    ),
    "AlterImport.groups[].protocol_type": Limit(
        LIMITS + "GROUP_PROTOCOL_CHARACTERS_MAX",
        INVALID,
        lambda client, size: import_group(client, protocol_type=text(size)),
    ),
    "AlterImport.groups[].offsets[].topic": Limit(
        TOPIC_NAME,
        BAD_TOPIC,
        lambda client, size: import_group(client, offsets=[{"topic": text(size), "partition": 0, "offset": 0}]),
    ),
    "AlterImport.groups[].offsets[].metadata": Limit(METADATA, ErrorCode.OFFSET_METADATA_TOO_LARGE, import_metadata),
    "AlterImport.group_configs[].group_id": Limit(
        GROUP_ID, BAD_GROUP, lambda client, size: finish(client, group_configs=[{"group_id": text(size)}])
    ),
    "AlterImport.group_configs[]": Limit(
        "chronik.metadata.handlers.groups.GROUPS_WITH_CONFIGS_MAX",
        TOO_MANY,
        lambda client, size: finish(client, group_configs=[{"group_id": text(40)}] * size),
        lowered_to=0,
        lowered_in="chronik.admin.topic_import",
        only_above=True,
    ),
    "AlterImport.group_configs[].configs[]": Limit(
        CONFIG_KEYS,
        BAD_CONFIG,
        lambda client, size: finish(
            client, group_configs=[{"group_id": text(40), "configs": [{"name": f"k{n}"} for n in range(size)]}]
        ),
    ),
    "AlterImport.group_configs[].configs[].name": Limit(
        CONFIG_NAME,
        BAD_CONFIG,
        lambda client, size: finish(client, group_configs=[{"group_id": text(40), "configs": [{"name": text(size)}]}]),
    ),
    "AlterImport.group_configs[].configs[].value": Limit(
        CONFIG_TEXT,
        BAD_CONFIG,
        lambda client, size: finish(client, group_configs=[{"group_id": text(40), "configs": config(size)}]),
    ),
    "AlterImport.cluster_configs[]": Limit(
        CONFIG_KEYS,
        BAD_CONFIG,
        lambda client, size: finish(client, cluster_configs=[{"name": f"k{n}"} for n in range(size)]),
        only_above=True,
    ),
    "AlterImport.cluster_configs[].name": Limit(
        CONFIG_NAME, BAD_CONFIG, lambda client, size: finish(client, cluster_configs=[{"name": text(size)}])
    ),
    "AlterImport.cluster_configs[].value": Limit(
        CONFIG_TEXT, BAD_CONFIG, lambda client, size: finish(client, cluster_configs=config(size)), only_above=True
    ),
    "ImportSecurity.users[].name": Limit(
        USER_NAME, BAD_CREDENTIAL, lambda client, size: import_user(client, text(size))
    ),
    "ImportSecurity.users[].keys[].salt": Limit(
        SALT, BAD_CREDENTIAL, lambda client, size: import_user(client, salt=bytes(size))
    ),
    "ImportSecurity.users[].keys[].stored_key": Limit(
        "chronik.admin.users.SECRET_BYTES",
        BAD_CREDENTIAL,
        lambda client, size: import_user(client, stored_key=bytes(size)),
    ),
    "ImportSecurity.users[].keys[].server_key": Limit(
        "chronik.admin.users.SECRET_BYTES",
        BAD_CREDENTIAL,
        lambda client, size: import_user(client, server_key=bytes(size)),
    ),
    "ImportSecurity.acls[]": Limit(
        LIMITS + "ACLS_PER_REQUEST_MAX",
        TOO_MANY,
        lambda client, size: (made := import_acl(client), {**made, "acls": made["acls"] * size})[1],
        lowered_to=2,
        lowered_in="chronik.admin.acls",
    ),
    "ImportSecurity.acls[].name": Limit(ACL_NAME, INVALID, lambda client, size: import_acl(client, name=text(size))),
    "ImportSecurity.acls[].principal": Limit(
        ACL_NAME, INVALID, lambda client, size: import_acl(client, principal="User:" + text(size - len("User:")))
    ),
    "ImportSecurity.acls[].host": Limit(ACL_NAME, INVALID, lambda client, size: import_acl(client, host=text(size))),
    "ImportSecurity.quotas[]": Limit(
        LIMITS + "QUOTA_ALTERATIONS_MAX",
        INVALID,
        lambda client, size: (
            made := import_quota(client, "q"),
            {**made, "quotas": [import_quotas_of(f"user-{generate_id().hex()}") for _ in range(size)]},
        )[1],
        lowered_to=2,
        lowered_in="chronik.admin.quotas",
    ),
    "ImportSecurity.quotas[].entity[].name": Limit(
        LIMITS + "QUOTA_NAME_CHARACTERS_MAX", INVALID, lambda client, size: import_quota(client, text(size))
    ),
    "ImportSchemas.commands[].data": Limit(
        LIMITS + "SUBJECT_NAME_CHARACTERS_MAX", INVALID, lambda client, size: import_subject(client, text(size))
    ),
    "SampleTable.pipeline": Limit(
        LIMITS + "PIPELINE_NAME_CHARACTERS_MAX", INVALID, lambda _, size: {"pipeline": text(size), "topic": TOPIC}
    ),
    "SampleTable.topic": Limit(TOPIC_NAME, BAD_TOPIC, lambda _, size: {"pipeline": "p", "topic": text(size)}),
    "AnswerSamples.pipeline": Limit(
        LIMITS + "PIPELINE_NAME_CHARACTERS_MAX", INVALID, lambda _, size: {"pipeline": text(size)}
    ),
}
for _api in ("AlterConfigs", "IncrementalAlterConfigs"):
    _of_api = {
        f"{_api}.resources[].resource_name": Limit(GROUP_ID, BAD_GROUP, lambda _, size: alter_group(text(size))),
        f"{_api}.resources[].configs[]": Limit(
            CONFIG_KEYS,
            BAD_CONFIG,
            lambda _, size: alter(BROKER_RESOURCE, "1", [{"name": f"k{n}", "value": ""} for n in range(size)]),
            only_above=_api == "IncrementalAlterConfigs",
        ),
        f"{_api}.resources[].configs[].name": Limit(
            CONFIG_NAME,
            BAD_CONFIG,
            lambda _, size: alter(BROKER_RESOURCE, "1", [{"name": text(size), "value": "v"}]),
        ),
        f"{_api}.resources[].configs[].value": Limit(
            CONFIG_TEXT, BAD_CONFIG, lambda _, size: alter(TOPIC_RESOURCE, TOPIC, throttles(size))
        ),
    }
    LIMITED.update(_of_api)


def import_quotas_of(name: str) -> RequestValues:
    return {"entity": [{"kind": "user", "name": name}], "values": [{"key": "producer_byte_rate", "value": 1e6}]}


ELEMENTS: Final = "the elements are handled one by one, and their own fields are limited"
EXISTING: Final = "only looked up: an unknown topic, partition or resource is answered with an error"
COMPARED: Final = "only compared with stored values"
READ: Final = "the request only reads, and its names are freed with the response"
KNOWN: Final = "only a fixed set of words is accepted"
LOGGED: Final = "only logged, and truncated in the log"

_WITHOUT_LIMIT: Final[dict[str, tuple[str, ...]]] = {
    COMPARED: (
        "Produce.transactional_id",
        "Fetch.cluster_id",
        "Fetch.rack_id",
        "OffsetCommit.member_id",
        "OffsetCommit.group_instance_id",
        "JoinGroup.member_id",
        "Heartbeat.group_id",
        "Heartbeat.member_id",
        "Heartbeat.group_instance_id",
        "LeaveGroup.group_id",
        "LeaveGroup.member_id",
        "LeaveGroup.members[]",
        "LeaveGroup.members[].member_id",
        "LeaveGroup.members[].group_instance_id",
        "SyncGroup.group_id",
        "SyncGroup.member_id",
        "SyncGroup.group_instance_id",
        "SyncGroup.protocol_type",
        "SyncGroup.protocol_name",
        "SyncGroup.assignments[]",
        "SyncGroup.assignments[].member_id",
        "AddPartitionsToTxn.transactional_id",
        "AddPartitionsToTxn.transactions[].transactional_id",
        "AddOffsetsToTxn.transactional_id",
        "EndTxn.transactional_id",
        "TxnOffsetCommit.transactional_id",
        "TxnOffsetCommit.member_id",
        "TxnOffsetCommit.group_instance_id",
        "AddRaftVoter.cluster_id",
        "RemoveRaftVoter.cluster_id",
        "AlterNodes.cluster_id",
        "AddRaftVoter.listeners[].name",
    ),
    "only the first listener is stored": ("AddRaftVoter.listeners[]",),
    "kept in memory (`RefusedBatches`) only for valid topic names, which TOPIC_NAME_CHARACTERS_MAX limits": (
        "Produce.topic_data[].name",
    ),
    "kept in fetch sessions only for existing topics, which FETCH_SESSION_PARTITIONS_MAX limits": (
        "Fetch.topics[]",
        "Fetch.topics[].topic",
        "Fetch.topics[].partitions[]",
        "Fetch.forgotten_topics_data[]",
        "Fetch.forgotten_topics_data[].topic",
        "Fetch.forgotten_topics_data[].partitions[]",
    ),
    READ: (
        "ListOffsets.topics[]",
        "ListOffsets.topics[].name",
        "ListOffsets.topics[].partitions[]",
        "OffsetFetch.group_id",
        "OffsetFetch.topics[]",
        "OffsetFetch.topics[].name",
        "OffsetFetch.topics[].partition_indexes[]",
        "OffsetFetch.groups[]",
        "OffsetFetch.groups[].group_id",
        "OffsetFetch.groups[].member_id",
        "OffsetFetch.groups[].topics[]",
        "OffsetFetch.groups[].topics[].name",
        "OffsetFetch.groups[].topics[].partition_indexes[]",
        "DescribeGroups.groups[]",
        "ListGroups.states_filter[]",
        "ListGroups.types_filter[]",
        "OffsetForLeaderEpoch.topics[]",
        "OffsetForLeaderEpoch.topics[].topic",
        "OffsetForLeaderEpoch.topics[].partitions[]",
        "DescribeAcls.resource_name_filter",
        "DescribeAcls.principal_filter",
        "DescribeAcls.host_filter",
        "DescribeConfigs.resources[]",
        "DescribeConfigs.resources[].resource_name",
        "DescribeConfigs.resources[].configuration_keys[]",
        "DescribeLogDirs.topics[]",
        "DescribeLogDirs.topics[].topic",
        "DescribeLogDirs.topics[].partitions[]",
        "ListPartitionReassignments.topics[]",
        "ListPartitionReassignments.topics[].name",
        "ListPartitionReassignments.topics[].partition_indexes[]",
        "DescribeClientQuotas.components[]",
        "DescribeClientQuotas.components[].entity_type",
        "DescribeClientQuotas.components[].match",
        "DescribeUserScramCredentials.users[]",
        "DescribeUserScramCredentials.users[].name",
        "DescribeQuorum.topics[]",
        "DescribeQuorum.topics[].topic_name",
        "DescribeQuorum.topics[].partitions[]",
        "DescribeProducers.topics[]",
        "DescribeProducers.topics[].name",
        "DescribeProducers.topics[].partition_indexes[]",
        "DescribeTransactions.transactional_ids[]",
        "ListTransactions.state_filters[]",
        "ListTransactions.producer_id_filters[]",
        "ListConfigResources.resource_types[]",
        "DescribeTopicPartitions.topics[]",
        "DescribeTopicPartitions.topics[].name",
        "DescribeTopicPartitions.cursor.topic_name",
        "FetchImported.partitions[]",
    ),
    "compiled patterns are cached up to `chronik.linear_regex.EXPRESSION_CHARACTERS_MAX`": (
        "ListTransactions.transactional_id_pattern",
    ),
    LOGGED: ("JoinGroup.reason", "LeaveGroup.members[].reason"),
    EXISTING: (
        "OffsetCommit.topics[].name",
        "DeleteTopics.topics[]",
        "DeleteTopics.topics[].name",
        "DeleteTopics.topic_names[]",
        "DeleteRecords.topics[]",
        "DeleteRecords.topics[].name",
        "DeleteRecords.topics[].partitions[]",
        "AddPartitionsToTxn.topics[].name",
        "AddPartitionsToTxn.transactions[].topics[].name",
        "WriteTxnMarkers.markers[]",
        "WriteTxnMarkers.markers[].topics[]",
        "WriteTxnMarkers.markers[].topics[].name",
        "WriteTxnMarkers.markers[].topics[].partition_indexes[]",
        "TxnOffsetCommit.topics[].name",
        "AlterReplicaLogDirs.dirs[]",
        "AlterReplicaLogDirs.dirs[].path",
        "AlterReplicaLogDirs.dirs[].topics[]",
        "AlterReplicaLogDirs.dirs[].topics[].name",
        "AlterReplicaLogDirs.dirs[].topics[].partitions[]",
        "CreatePartitions.topics[].name",
        "DeleteGroups.groups_names[]",
        "ElectLeaders.topic_partitions[]",
        "ElectLeaders.topic_partitions[].topic",
        "ElectLeaders.topic_partitions[].partitions[]",
        "AlterPartitionReassignments.topics[].name",
        "OffsetDelete.group_id",
        "OffsetDelete.topics[]",
        "OffsetDelete.topics[].name",
        "OffsetDelete.topics[].partitions[]",
        "DeleteAcls.filters[]",
        "DeleteAcls.filters[].resource_name_filter",
        "DeleteAcls.filters[].principal_filter",
        "DeleteAcls.filters[].host_filter",
    ),
    ELEMENTS: (
        "Produce.topic_data[]",
        "Produce.topic_data[].partition_data[]",
        "Metadata.topics[]",
        "OffsetCommit.topics[]",
        "AddPartitionsToTxn.topics[]",
        "AddPartitionsToTxn.transactions[]",
        "AddPartitionsToTxn.transactions[].topics[]",
        "TxnOffsetCommit.topics[]",
        "AlterConfigs.resources[]",
        "IncrementalAlterConfigs.resources[]",
        "CreatePartitions.topics[]",
        "AlterPartitionReassignments.topics[]",
        "AlterPartitionReassignments.topics[].partitions[]",
        "AlterUserScramCredentials.deletions[]",
        "AlterUserScramCredentials.upsertions[]",
        "AlterNodes.changes[]",
        "ImportRecords.partitions[]",
        "AlterImport.topics[]",
        "ImportSecurity.users[]",
        "ImportSchemas.commands[]",
    ),
    KNOWN: (
        "SaslHandshake.mechanism",
        "CreateTopics.topics[].configs[]",
        "CreateTopics.topics[].configs[].name",
        "AlterClientQuotas.entries[].entity[]",
        "AlterClientQuotas.entries[].entity[].entity_type",
        "AlterClientQuotas.entries[].ops[]",
        "AlterClientQuotas.entries[].ops[].key",
        "UpdateFeatures.feature_updates[]",
        "UpdateFeatures.feature_updates[].feature",
        "AlterImport.topics[].configs[]",
        "AlterImport.topics[].configs[].name",
        "ImportSecurity.users[].keys[]",
        "ImportSecurity.quotas[].entity[]",
        "ImportSecurity.quotas[].entity[].kind",
        "ImportSecurity.quotas[].values[]",
        "ImportSecurity.quotas[].values[].key",
    ),
    "limited by LOGIN_BYTES_MAX and UNAUTHENTICATED_FRAME_BYTES_MAX, which tests/security/sasl covers": (
        "SaslAuthenticate.auth_bytes",
    ),
    "imported records go to the log of a partition on disk, in the batches of their source": (
        "ImportRecords.partitions[].records",
    ),
    "an import contains all offsets of its source, in any number": ("AlterImport.groups[].offsets[]",),
    "limited by SAMPLE_BYTES_MAX; the client that requested the sample gets the error (tests/broker/requests)": (
        "AnswerSamples.answers[]",
        "AnswerSamples.answers[].sample",
    ),
}
WITHOUT_LIMIT: Final = {path: reason for reason, paths in _WITHOUT_LIMIT.items() for path in paths}


def fields_of(cls: type[Struct], prefix: str) -> Iterator[str]:
    """Yield the paths of all fields of variable size."""
    for field in cls.__schema__.fields:
        path = f"{prefix}.{field.name}"
        if field.kind in ("string", "bytes", "records"):
            yield path
        elif field.kind in ("array", "struct"):
            path += "[]" if field.kind == "array" else ""
            if field.kind == "array":
                yield path
            if isinstance(field.element, type):
                yield from fields_of(field.element, path)


def test_every_request_field_has_a_limit_or_a_reason() -> None:
    fields = {path for api in APIS.values() for path in fields_of(REQUESTS[api.key], api.name)}
    listed = [*LIMITED, *(path for paths in _WITHOUT_LIMIT.values() for path in paths)]
    assert len(fields) > 200
    assert len(listed) == len(set(listed)), "a field is listed twice"
    assert fields - set(listed) == set(), "new fields: name their limit, or the reason why they need none"
    assert set(listed) - fields == set(), "fields that do not exist"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingNode]:
    """Return a cluster of one node, so that APIs which change nodes work, whose clients are super users."""
    reserved = ReservedPorts(1)
    peers = [{"id": 1, "kafka": f"{HOST}:0", "raft": f"{HOST}:{reserved.ports[0]}"}]
    configs = {"super.users": "User:ANONYMOUS", "group.initial.rebalance.delay.ms": "0"}
    node = AuthorizingNode(tmp_path_factory.mktemp("limited"), peers=peers, **configs)
    node.wait_until(lambda: any(broker.is_online for broker in node.services.image.brokers.values()))
    with RawClient(node.bootstrap) as client:
        topics = [
            {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1},
            {
                "name": SMALL_TOPIC,
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": [{"name": "max.message.bytes", "value": str(SMALL_BYTES)}],
            },
            {"name": PIPELINES_TOPIC, "num_partitions": 1, "replication_factor": 1},
        ]
        assert not error_codes_in(send_request(client, "CreateTopics", 7, topics=topics, timeout_ms=10_000))
        deadline = time.monotonic() + 30
        for made in ({"key": "group", "key_type": 0}, {"key": "id", "key_type": 1}):
            while error_codes_in(
                send_request(client, "FindCoordinator", 3, **made)
            ):  # until the system topics exist and have leaders
                assert time.monotonic() < deadline
    yield node
    node.close()
    reserved.release()


@pytest.fixture
def client(node: AuthorizingNode) -> Iterator[RawClient]:
    with RawClient(node.bootstrap) as client:
        yield client


@pytest.mark.parametrize("path", LIMITED)
def test_field_above_its_limit_is_rejected(
    node: AuthorizingNode, client: RawClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    limit = LIMITED[path]
    if limit.lowered_to is not None:
        name = limit.constant.rpartition(".")[2]
        module = importlib.import_module(limit.lowered_in)
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, limit.lowered_to)
    api = path.partition(".")[0]
    version = (
        limit.version if limit.version >= 0 else max(each.max_version for each in APIS.values() if each.name == api)
    )
    if not limit.only_above:
        accepted = send_request(client, api, version, **limit.build_values(client, limit.maximum))
        assert limit.code not in error_codes_in(accepted), "a value at the limit was rejected"
    request = limit.build_values(client, limit.maximum + 1)
    before = node.services.image.applied_index
    rejected = send_request(client, api, version, **request)
    assert limit.code in error_codes_in(rejected), "a value one above the limit was accepted"
    assert node.services.image.applied_index == before, "the request was rejected after it was proposed"


def test_long_client_id_of_group_member_is_truncated(node: AuthorizingNode, client: RawClient) -> None:
    client.client_id = text(CLIENT_ID_CHARACTERS_MAX + 1)
    member = only_member(client)
    (described,) = send_request(client, "DescribeGroups", 5, groups=[member["group_id"]]).groups
    assert [each.client_id for each in described.members] == [client.client_id[:-1]]


def test_producer_ids_above_client_limit_return_retriable_error(
    node: AuthorizingNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.services, "producer_id_allowances", ClientRateLimiter(2, seconds=3600.0))
    codes = [send_request(client, "InitProducerId", 4, transactional_id=None).error_code for _ in range(3)]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_default_producer_id_limit_allows_burst_then_rate(node: AuthorizingNode) -> None:
    allowances, client = node.services.producer_id_allowances, ("User:test", "10.0.0.1")
    assert all(allowances.try_acquire(client, 0.0) for _ in range(PRODUCER_IDS_PER_CLIENT_MAX))
    assert not allowances.try_acquire(client, 0.0)
    assert (
        sum(allowances.try_acquire(client, 1.0) for _ in range(PRODUCER_IDS_PER_SECOND + 1)) == PRODUCER_IDS_PER_SECOND
    )
