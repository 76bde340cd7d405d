from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import chronik.protocol.messages
from chronik.protocol.apis import APIS, KAFKA_APIS, VersionRange
from chronik.protocol.codec import REQUESTS, RESPONSES
from chronik.protocol.compiler import compile_decoder
from chronik.protocol.schema import Request, Response, Struct

README = Path(__file__).parents[2] / "README.md"

# Kafka 4.3's ranges, widened by the older versions that Kafka 3.x still served: (key, first, last, first flexible).
EXPECTED = {
    "Produce": (0, 0, 13, 9),
    "Fetch": (1, 0, 18, 12),
    "ListOffsets": (2, 0, 11, 6),
    "Metadata": (3, 0, 13, 9),
    "OffsetCommit": (8, 0, 10, 8),
    "OffsetFetch": (9, 0, 10, 6),
    "FindCoordinator": (10, 0, 6, 3),
    "JoinGroup": (11, 0, 9, 6),
    "Heartbeat": (12, 0, 4, 4),
    "LeaveGroup": (13, 0, 5, 4),
    "SyncGroup": (14, 0, 5, 4),
    "DescribeGroups": (15, 0, 6, 5),
    "ListGroups": (16, 0, 5, 3),
    "SaslHandshake": (17, 0, 1, 32767),
    "ApiVersions": (18, 0, 4, 3),
    "CreateTopics": (19, 0, 7, 5),
    "DeleteTopics": (20, 0, 6, 4),
    "DeleteRecords": (21, 0, 2, 2),
    "InitProducerId": (22, 0, 5, 2),
    "OffsetForLeaderEpoch": (23, 0, 4, 4),
    "AddPartitionsToTxn": (24, 0, 5, 3),
    "AddOffsetsToTxn": (25, 0, 4, 3),
    "EndTxn": (26, 0, 5, 3),
    "WriteTxnMarkers": (27, 0, 2, 1),
    "TxnOffsetCommit": (28, 0, 5, 3),
    "DescribeAcls": (29, 0, 3, 2),
    "CreateAcls": (30, 0, 3, 2),
    "DeleteAcls": (31, 0, 3, 2),
    "DescribeConfigs": (32, 0, 4, 4),
    "AlterConfigs": (33, 0, 2, 2),
    "AlterReplicaLogDirs": (34, 0, 2, 2),
    "DescribeLogDirs": (35, 0, 5, 2),
    "SaslAuthenticate": (36, 0, 2, 2),
    "CreatePartitions": (37, 0, 3, 2),
    "DeleteGroups": (42, 0, 2, 2),
    "ElectLeaders": (43, 0, 2, 2),
    "AlterPartitionReassignments": (45, 0, 1, 0),
    "ListPartitionReassignments": (46, 0, 0, 0),
    "IncrementalAlterConfigs": (44, 0, 1, 1),
    "OffsetDelete": (47, 0, 0, 32767),
    "DescribeClientQuotas": (48, 0, 1, 1),
    "AlterClientQuotas": (49, 0, 1, 1),
    "DescribeUserScramCredentials": (50, 0, 0, 0),
    "AlterUserScramCredentials": (51, 0, 0, 0),
    "DescribeQuorum": (55, 0, 2, 0),
    "UpdateFeatures": (57, 0, 2, 0),
    "DescribeCluster": (60, 0, 2, 0),
    "DescribeProducers": (61, 0, 0, 0),
    "UnregisterBroker": (64, 0, 0, 0),
    "DescribeTransactions": (65, 0, 0, 0),
    "ListTransactions": (66, 0, 2, 0),
    "ListConfigResources": (74, 0, 1, 0),
    "DescribeTopicPartitions": (75, 0, 0, 0),
    "AddRaftVoter": (80, 0, 1, 0),
    "RemoveRaftVoter": (81, 0, 0, 0),
}


def test_api_table_has_expected_versions() -> None:
    found = {api.name: (api.key, api.min_version, api.max_version, api.first_flexible) for api in KAFKA_APIS.values()}
    assert found == EXPECTED, "each API needs a line in EXPECTED, copied from Kafka's schema and not from ours"


def test_message_schema_has_key_and_versions_of_its_api() -> None:
    for api in APIS.values():
        for message in (REQUESTS[api.key], RESPONSES[api.key]):
            assert message.__schema__[2:] == (api.key, api.versions, api.flexible)


def test_each_message_module_declares_exactly_its_api() -> None:
    (budget,) = map(Path, chronik.protocol.messages.__path__)
    assert {path.stem for path in budget.glob("*.py")} - {"__init__"} == {api.module for api in APIS.values()}
    for api in APIS.values():
        declared = vars(import_module(f"chronik.protocol.messages.{api.module}")).values()
        own = [each for each in declared if isinstance(each, type) and each.__module__.endswith(f".{api.module}")]
        parts = [each for each in own if issubclass(each, Struct)]
        messages = {each for each in parts if issubclass(each, Request | Response) or each.__schema__.api_key >= 0}
        assert messages == {REQUESTS[api.key], RESPONSES[api.key]}


def test_readme_states_number_of_apis() -> None:
    count = len(KAFKA_APIS)
    is_stated = f"{count} APIs in every version" in README.read_text(encoding="utf-8")
    assert is_stated, f"README.md must state the number of APIs: {count}"


def test_chronik_apis_are_not_listed_by_api_versions() -> None:
    own = {api.name for api in APIS.values() if api.key not in KAFKA_APIS}
    of_imports = {"ImportRecords", "DescribeImage", "AlterImport", "FetchImported", "HoldCommits", "ImportSecurity"}
    of_imports.add("ImportSchemas")
    assert own == {"DescribeNodes", "DescribeHealth", "AlterNodes", "SampleTable", "AnswerSamples"} | of_imports
    assert not any(api.is_kafka_api for api in APIS.values() if api.name in own)


def test_version_ranges_are_parsed_as_in_kafka_schemas() -> None:
    assert VersionRange.parse("3") == (3, 3)
    assert VersionRange.parse("0-12") == (0, 12)
    assert VersionRange.parse("9+").covers(9)
    assert not VersionRange.parse("9+").covers(8)
    assert not any(VersionRange.parse("none").covers(version) for version in range(-1, 20))


@pytest.mark.slow
def test_codec_is_compiled_once_on_first_use() -> None:
    script = (
        "import chronik.protocol.codec, chronik.protocol.compiler as c;"
        "assert c.compile_decoder.cache_info().currsize == c.compile_encoder.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    request = REQUESTS[0]
    assert compile_decoder(request, 9) is compile_decoder(request, 9)


def test_default_lists_are_not_shared_between_messages() -> None:
    first, second = RESPONSES[3](), RESPONSES[3]()
    first.topics.append(None)  # type: ignore[attr-defined]
    assert second.topics == []  # type: ignore[attr-defined]
