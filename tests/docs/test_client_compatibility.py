"""The table of client compatibility, from the recorded outcomes of client tests."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.clients.client_catalog import CLIENTS
from tests.clients.compatibility_recorder import FEATURES, WITHOUT_PARAMETERS, CompatibilityRecorder, find_clients
from tests.docs.blocks import ROOT
from tools.docs.client_compatibility import COLUMNS, format_table


@pytest.mark.parametrize(
    ("names", "parameters", "expected"),
    [
        (("test_x", "test_admin_clients"), {"admin": "java-4"}, ["java-4"]),
        (("test_x", "test_y"), {"reader": "kcat", "writer": "confluent", "grouped": True}, ["confluent", "kcat"]),
        (("test_x", "test_kafka_tools"), {"quotas": {}}, ["Kafka's own tools"]),
        (("test_group_of_different_clients_uses_range_assignor", "test_groups"), {}, []),
    ],
)
def test_clients_of_test_are_taken_from_its_parameters(
    names: tuple[str, str], parameters: dict[str, object], expected: list[str]
) -> None:
    assert find_clients(names, parameters) == expected


def test_feature_is_failed_if_one_test_failed() -> None:
    recorder = CompatibilityRecorder()
    names = ("test_x", "test_transactions")
    for outcome in ("passed", "passed", "failed"):
        recorder.count(names, SimpleNamespace(params={"writer": "kafkajs"}), outcome)
    recorder.count(("test_x", "test_admin_clients"), SimpleNamespace(params={"admin": "java-4"}), "skipped")
    table_text = format_table(json.loads(recorder.to_json()))
    assert "**1 failed**, 2 passed" in table_text
    assert "passed" not in next(line for line in table_text.splitlines() if "Java client 4" in line)


def test_every_recorded_feature_has_a_column_and_tests() -> None:
    assert set(FEATURES.values()) == set(COLUMNS)
    sources = {path.stem: path.read_text() for path in (ROOT / "tests" / "clients").glob("test_*.py")}
    missing = [
        name
        for name in (*FEATURES, *WITHOUT_PARAMETERS)
        if name not in sources and not any(f"def {name}(" in text for text in sources.values())
    ]
    assert missing == []


def test_recorded_compatibility_contains_every_client() -> None:
    recorded_file = ROOT / "docs" / "reference" / "client-compatibility.json"
    recorded = json.loads(recorded_file.read_text(encoding="utf-8"))
    assert set(CLIENTS) <= set(recorded)
