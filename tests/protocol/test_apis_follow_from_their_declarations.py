from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chronik.protocol.apis import APIS
from chronik.protocol.compiling.compile import decoder
from chronik.protocol.schema import Versions

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
    "DescribeUserScramCredentials": (50, 0, 0, 0),
    "DescribeQuorum": (55, 0, 2, 0),
    "UpdateFeatures": (57, 0, 2, 0),
    "DescribeCluster": (60, 0, 2, 0),
    "DescribeProducers": (61, 0, 0, 0),
    "DescribeTransactions": (65, 0, 0, 0),
    "ListTransactions": (66, 0, 2, 0),
    "ListConfigResources": (74, 0, 1, 0),
    "DescribeTopicPartitions": (75, 0, 0, 0),
}


def test_the_registry_holds_every_api_with_its_versions() -> None:
    found = {api.name: (api.key, api.min_version, api.max_version, api.first_flexible) for api in APIS.values()}
    assert found == EXPECTED, "an API has a line in EXPECTED above, copied from Kafka's schema and not from ours"


def test_the_readme_counts_the_apis() -> None:
    assert f"{len(APIS)} APIs in every version" in README.read_text(encoding="utf-8")


def test_versions_are_written_as_in_kafkas_schemas() -> None:
    assert Versions.parse("3") == (3, 3)
    assert Versions.parse("0-12") == (0, 12)
    assert Versions.parse("9+").covers(9)
    assert not Versions.parse("9+").covers(8)
    assert not any(Versions.parse("none").covers(version) for version in range(-1, 20))


@pytest.mark.slow
def test_a_version_is_compiled_once_and_only_when_used() -> None:
    script = (
        "import chronik.protocol.codec, chronik.protocol.compiling.compile as c;"
        "assert c.decoder.cache_info().currsize == c.encoder.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    request = APIS[0].request
    assert decoder(request, 9) is decoder(request, 9)


def test_lists_of_two_messages_are_not_shared() -> None:
    first, second = APIS[3].response(), APIS[3].response()
    first.topics.append(None)  # type: ignore[attr-defined]
    assert second.topics == []  # type: ignore[attr-defined]
