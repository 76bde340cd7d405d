"""Names that users and stored data depend on: JSON keys, REST paths, metrics, configs, CLI options and file formats.

`tests/golden/public_names.json` records them. If a change to it is intended, write it again with
`python -m tests.test_public_names`, and describe the change in CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from chronik import pipeline_journal
from chronik.bench import acks, commits, consume, metadata, produce, round_trip, topics, transactions
from chronik.bench.main import MEASUREMENTS
from chronik.bench.main import create_parser as bench_parser_of
from chronik.cli.main import COMMANDS, build_parser
from chronik.client.groups import GroupSummary
from chronik.config import NodeConfig, PeerConfig
from chronik.configs.broker_key_lookup import iter_broker_keys
from chronik.configs.group_keys import GROUP_KEYS
from chronik.configs.keys import TOPIC_KEYS
from chronik.console.metrics.families import SECTIONS
from chronik.console.rest.openapi import build_document
from chronik.migration.backup.manifest import BackupChunk, BackupFile, BackupManifest, BackupPartition
from chronik.node.identity import DirectoryIdentity, DirectoryMode
from chronik.pipeline.audit import findings as audit_findings
from chronik.pipeline.journal import journal_client
from chronik.pipeline.journal.pipeline_status import PartitionStatus, TopicStatus
from chronik.pipeline.journal.reports import MaintenanceReport, TopicReport
from chronik.pipeline.maintenance.dead_letters import DeadLetterRecord, RetryResult
from chronik.pipeline.maintenance.replay import ReplayResult
from chronik.pipeline.spark import environment_checks
from chronik.pipeline.spark.connect_server import ConnectServer
from chronik.pipeline.table_maintenance.merges import CompactionStats
from chronik.pipeline_journal import ColumnInfo

GOLDEN: Final = Path(__file__).parent / "golden" / "public_names.json"

PROSE_KEYS: Final = frozenset({"description", "summary"})
"""Keys of the OpenAPI document whose values are texts."""

PRINTED_AS_JSON: Final = (
    *(
        GroupSummary,
        MaintenanceReport,
        TopicReport,
        TopicStatus,
        PartitionStatus,
        ConnectServer,
        CompactionStats,
        DeadLetterRecord,
        RetryResult,
        ReplayResult,
    ),
    *(
        audit_findings.Finding,
        audit_findings.ReplicaId,
        environment_checks.CheckResult,
        pipeline_journal.PipelineTopicKey,
    ),
    *(acks.AcksResult, commits.CommitsResult, consume.ConsumeResult, metadata.MetadataResult, produce.ProduceResult),
    *(round_trip.RoundTripResult, topics.TopicsResult, transactions.TransactionsResult),
)
"""Classes whose fields are printed or stored as JSON keys."""


def without_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_prose(each) for key, each in value.items() if key not in PROSE_KEYS}
    return [without_prose(each) for each in value] if isinstance(value, list) else value


def field_names(of: type) -> list[str]:
    if dataclasses.is_dataclass(of):
        return [field.name for field in dataclasses.fields(of)]
    return list(of._fields)  # type: ignore[attr-defined]


def options(parser: argparse.ArgumentParser, words: str) -> Iterator[tuple[str, list[str]]]:
    yield words, sorted(option for action in parser._actions for option in action.option_strings)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                yield from options(each, f"{words} {name}")


def command_line() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in COMMANDS:
        if word == "bench":
            for measurement in MEASUREMENTS:
                found.update(options(bench_parser_of(measurement), f"bench {measurement}"))
        else:
            found.update(options(build_parser(word), word))
    return found


def sample_manifest() -> BackupManifest:
    file = BackupFile("logs/a", 3, "00")
    partition = BackupPartition("AAAAAAAAAAAAAAAAAAAAAQ", 0, 1, 5, 2, 7, False, (BackupChunk(file, 1, 5),))
    return BackupManifest(1, "cluster", 4, 1_700_000_000_000, 12, file, (partition,))


def sample_journal() -> list[tuple[str, str]]:
    place = pipeline_journal.PipelineTopicKey("tables", "orders")
    progress = pipeline_journal.TopicProgress(
        "landing", "file:///t", {0: 5}, {0: 9}, 5, 0.5, 5, 1, "no", 3, "host", 1, 2, 4
    )
    records = (
        journal_client.encode_progress(place, progress),
        journal_client.encode_schema(place, pipeline_journal.TableColumns((ColumnInfo("id", "bigint"),), 2)),
        journal_client.encode_pause_control(place, True),
    )
    return [((record.key or b"").decode(), (record.value or b"").decode()) for record in records]


def public_names() -> dict[str, Any]:
    identity = DirectoryIdentity(1, "AAAAAAAAAAAAAAAAAAAAAQ", DirectoryMode.CLUSTER, "cluster", 2, 5)
    names: dict[str, Any] = {
        "openapi": without_prose(build_document()) | {"info": None},
        "metrics": [[each.name, each.kind, each.labels] for section in SECTIONS for each in section.families],
        "broker_configs": sorted([key.name, key.type.name, key.default] for key in iter_broker_keys()),
        "topic_configs": sorted([key.name, key.type.name, key.default] for key in TOPIC_KEYS.values()),
        "group_configs": sorted(GROUP_KEYS),
        "node_config": [*NodeConfig.__struct_fields__],
        "peer_config": [*PeerConfig._fields],
        "command_line": command_line(),
        "node.json": msgspec.json.encode(identity).decode(),
        "backup_manifest": msgspec.json.encode(sample_manifest()).decode(),
        "pipeline_journal": sample_journal(),
        "printed_as_json": sorted(map(field_names, PRINTED_AS_JSON)),
    }
    return json.loads(json.dumps(names))  # type: ignore[no-any-return]


RECORDED: Final[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}


@pytest.fixture(scope="module")
def current() -> dict[str, Any]:
    return public_names()


@pytest.mark.parametrize("kind", RECORDED)
def test_public_names_are_unchanged(kind: str, current: dict[str, Any]) -> None:
    assert current[kind] == RECORDED[kind]


def test_all_kinds_of_public_names_are_recorded(current: dict[str, Any]) -> None:
    assert sorted(current) == sorted(RECORDED)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(public_names(), indent=1) + "\n", encoding="utf-8")
