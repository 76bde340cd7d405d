"""The table of APIs declares the handler, target, permissions and audit of every API."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import chronik.api
from chronik.api.routing.audit import CHANGE_DESCRIBERS
from chronik.api.routing.handlers import HANDLERS
from chronik.api.shared.read_consistency import CONFIRMED_READS, FENCED_ERRORS, UNCONFIRMED_ERRORS
from chronik.protocol.apis import APIS, Api, ApiTarget
from chronik.protocol.permissions import AclOperation, AclResourceType, RequiredPermission, parse_permissions

BEFORE_AUTHENTICATION = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
EVERY_API = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)


@EVERY_API
def test_every_api_declares_its_permissions(api: Api) -> None:
    assert bool(api.required_permissions) == (api.name not in BEFORE_AUTHENTICATION)


def test_permissions_are_parsed_from_kafkas_names() -> None:
    assert parse_permissions("Read Group, IdempotentWrite Cluster, Write TransactionalId") == (
        RequiredPermission(AclOperation.READ, AclResourceType.GROUP),
        RequiredPermission(AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER),
        RequiredPermission(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID),
    )


@pytest.mark.parametrize("wrong", ["Peruse Topic", "Read Topics", "Topic Read", "Read Group, Describe Tokens"])
def test_unknown_permission_name_is_rejected_with_a_hint(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"'(Peruse|Topics|Topic|Tokens)'.*protocol/permissions\.py"):
        parse_permissions(wrong)


UNAUDITED = {
    "reads only": "Fetch FetchImported ListOffsets OffsetFetch FindCoordinator "
    "OffsetForLeaderEpoch DescribeGroups ListGroups DescribeAcls DescribeConfigs DescribeLogDirs "
    "ListPartitionReassignments DescribeClientQuotas DescribeQuorum DescribeUserScramCredentials "
    "DescribeCluster DescribeProducers DescribeTransactions ListTransactions ListConfigResources "
    "DescribeTopicPartitions DescribeNodes DescribeHealth DescribeImage SampleTable",
    "starts a connection; a failed login is logged": "ApiVersions SaslHandshake SaslAuthenticate",
    "producers use it all the time": "Produce InitProducerId AddPartitionsToTxn AddOffsetsToTxn EndTxn TxnOffsetCommit",
    "consumers use it all the time": "OffsetCommit JoinGroup Heartbeat LeaveGroup SyncGroup",
    "changes nothing: a node has one data directory": "AlterReplicaLogDirs",
    "is part of an import, whose start and end are audited": "ImportRecords",
    "audits auto-created topics in its handler": "Metadata",
    "returns rows to the client that requested them, and stores nothing": "AnswerSamples",
}
"""Reasons why an API has no line in the audit log, with the names of the APIs."""


@EVERY_API
def test_every_api_is_audited_or_exempt(api: Api) -> None:
    reasons = [reason for reason, names in UNAUDITED.items() if api.name in names.split()]
    places = reasons + [api.name] * (api.name in CHANGE_DESCRIBERS)
    assert len(places) == 1, (
        f"{api.name} must either be in CHANGE_DESCRIBERS of api/routing/audit.py or have one reason in UNAUDITED above"
    )


def test_audit_tables_contain_only_known_apis() -> None:
    named = {name for names in UNAUDITED.values() for name in names.split()}
    unknown = (named | set(CHANGE_DESCRIBERS)) - {api.name for api in APIS.values()}
    assert not unknown, (
        "UNAUDITED above, or CHANGE_DESCRIBERS of api/routing/audit.py, names no API of protocol/apis.py"
    )


@EVERY_API
def test_every_api_is_handled_by_the_module_of_its_name(api: Api) -> None:
    module = import_module(f"chronik.api.{api.module}")
    assert inspect.unwrap(HANDLERS[api.key].handle) is module.handle or api.name in CHANGE_DESCRIBERS


def test_every_module_of_the_api_package_is_an_api() -> None:
    (package,) = map(Path, chronik.api.__path__)
    assert {path.stem for path in package.glob("*.py")} - {"__init__"} == {api.module for api in APIS.values()}


def test_consistency_requirements_follow_from_api_target() -> None:
    asked = {
        kind: [key in each for each in (FENCED_ERRORS, UNCONFIRMED_ERRORS, CONFIRMED_READS)]
        for kind in ApiTarget
        for key in [next(api.key for api in APIS.values() if api.target is kind)]
    }
    assert asked == {
        ApiTarget.NODE: [False, False, False],
        ApiTarget.METADATA: [False, False, True],
        ApiTarget.LEADER: [True, True, True],
        ApiTarget.COORDINATOR: [True, False, False],
        ApiTarget.COORDINATOR_STATE: [True, True, True],
        ApiTarget.COORDINATOR_LOOKUP: [False, True, True],
        ApiTarget.OFFSETS: [False, True, True],
    }


@pytest.mark.slow
def test_node_starts_without_importing_handlers() -> None:
    script = (
        "import sys, chronik.node.run;"
        "from chronik.protocol.apis import APIS;"
        "assert not [api.name for api in APIS.values() if f'chronik.api.{api.module}' in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
