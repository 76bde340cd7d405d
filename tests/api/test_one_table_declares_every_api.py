"""Each API has its line in one table: who handles it, who may answer it, and what a client must be allowed."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import chronik.api
from chronik.api.routing.changes import CHANGES
from chronik.api.routing.handlers import HANDLERS
from chronik.api.shared.admission import CONFIRMED_READS, FENCED, UNCONFIRMED
from chronik.protocol.apis import APIS, Api, Asked
from chronik.protocol.permissions import Need, Operation, ResourceType, parse_needs

BEFORE_ANYBODY_IS_KNOWN = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
EVERY_API = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)


@EVERY_API
def test_an_api_says_what_a_client_must_be_allowed(api: Api) -> None:
    assert bool(api.needs) == (api.name not in BEFORE_ANYBODY_IS_KNOWN)


def test_what_must_be_allowed_is_written_in_kafkas_words() -> None:
    assert parse_needs("Read Group, IdempotentWrite Cluster, Write TransactionalId") == (
        Need(Operation.READ, ResourceType.GROUP),
        Need(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
        Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
    )


@pytest.mark.parametrize("wrong", ["Peruse Topic", "Read Topics", "Topic Read", "Read Group, Describe Tokens"])
def test_a_word_that_kafka_does_not_have_is_named_and_where_the_others_are(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"'(Peruse|Topics|Topic|Tokens)'.*protocol/permissions\.py"):
        parse_needs(wrong)


UNTOLD = {
    "reads, and changes nothing": "Fetch FetchImported ListOffsets OffsetFetch FindCoordinator "
    "OffsetForLeaderEpoch DescribeGroups ListGroups DescribeAcls DescribeConfigs DescribeLogDirs "
    "ListPartitionReassignments DescribeClientQuotas DescribeQuorum DescribeUserScramCredentials "
    "DescribeCluster DescribeProducers DescribeTransactions ListTransactions ListConfigResources "
    "DescribeTopicPartitions DescribeNodes DescribeImage SampleTable",
    "is how a connection begins; a login that fails is logged": "ApiVersions SaslHandshake SaslAuthenticate",
    "is what producers do all the time": "Produce InitProducerId AddPartitionsToTxn AddOffsetsToTxn EndTxn "
    "TxnOffsetCommit",
    "is what consumers do all the time": "OffsetCommit JoinGroup Heartbeat LeaveGroup SyncGroup",
    "moves nothing: a node has one data folder": "AlterReplicaLogDirs",
    "is a piece of an import, whose beginning and end are told": "ImportRecords",
    "tells of the topics that it makes where it makes them": "Metadata",
    "tells rows to the one who asked, and leaves nothing behind": "AnswerSamples",
}
"""Why the audit log has no line for each of these."""


@EVERY_API
def test_an_api_tells_the_audit_log_what_it_changes_or_there_is_a_reason_why_not(api: Api) -> None:
    reasons = [reason for reason, names in UNTOLD.items() if api.name in names.split()]
    places = reasons + [api.name] * (api.name in CHANGES)
    assert len(places) == 1, (
        f"{api.name} is either in CHANGES of api/routing/changes.py or has one reason in UNTOLD above"
    )


def test_nothing_is_told_or_left_untold_that_is_no_api() -> None:
    named = {name for names in UNTOLD.values() for name in names.split()}
    unknown = (named | set(CHANGES)) - {api.name for api in APIS.values()}
    assert not unknown, "UNTOLD above, or CHANGES of api/routing/changes.py, names what has no line in protocol/apis.py"


@EVERY_API
def test_an_api_is_handled_in_the_file_that_has_its_name(api: Api) -> None:
    module = import_module(f"chronik.api.{api.module}")
    assert inspect.unwrap(HANDLERS[api.key].handle) is module.handle or api.name in CHANGES


def test_the_files_of_the_room_are_apis() -> None:
    (room,) = map(Path, chronik.api.__path__)
    assert {path.stem for path in room.glob("*.py")} - {"__init__"} == {api.module for api in APIS.values()}


def test_who_may_answer_follows_from_whom_it_is_asked_of() -> None:
    asked = {
        kind: [key in each for each in (FENCED, UNCONFIRMED, CONFIRMED_READS)]
        for kind in Asked
        for key in [next(api.key for api in APIS.values() if api.asked is kind)]
    }
    assert asked == {
        Asked.NODE: [False, False, False],
        Asked.METADATA: [False, False, True],
        Asked.LEADER: [True, True, True],
        Asked.COORDINATOR: [True, False, False],
        Asked.COORDINATOR_STATE: [True, True, True],
        Asked.OFFSETS: [False, True, True],
    }


@pytest.mark.slow
def test_a_node_starts_without_what_handles_its_apis() -> None:
    script = (
        "import sys, chronik.node.run;"
        "from chronik.protocol.apis import APIS;"
        "assert not [api.name for api in APIS.values() if f'chronik.api.{api.module}' in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
