"""Which client can do what is counted from tests that real clients have passed, and shown as a table."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.clients.catalogue import CLIENTS
from tests.clients.recording import FEATURES, WITHOUT_PARAMETERS, Recorder, clients_of
from tests.docs.blocks import ROOT
from tools.docs.clients_table import COLUMNS, table


@pytest.mark.parametrize(
    ("names", "parameters", "expected"),
    [
        (("test_x", "test_admin_clients"), {"admin": "java-4"}, ["java-4"]),
        (("test_x", "test_y"), {"reader": "kcat", "writer": "confluent", "grouped": True}, ["confluent", "kcat"]),
        (("test_x", "test_kafkas_own_tools"), {"quotas": {}}, ["Kafka's own tools"]),
        (("test_different_clients_share_one_group", "test_groups"), {}, []),
    ],
)
def test_a_test_is_of_the_clients_that_it_names(
    names: tuple[str, str], parameters: dict[str, object], expected: list[str]
) -> None:
    assert clients_of(names, parameters) == expected


def test_a_feature_fails_if_one_of_its_tests_does() -> None:
    recorder = Recorder()
    names = ("test_x", "test_transactions_of_every_client")
    for outcome in ("passed", "passed", "failed"):
        recorder.count(names, SimpleNamespace(params={"writer": "kafkajs"}), outcome)
    recorder.count(("test_x", "test_admin_clients"), SimpleNamespace(params={"admin": "java-4"}), "skipped")
    shown = table(json.loads(recorder.told()))
    assert "**1 failed**, 2 passed" in shown
    assert "passed" not in next(line for line in shown.splitlines() if "java-4" in line)


def test_every_feature_has_a_column_and_tests() -> None:
    assert set(FEATURES.values()) == set(COLUMNS)
    sources = {path.stem: path.read_text() for path in (ROOT / "tests" / "clients").glob("test_*.py")}
    missing = [
        name
        for name in (*FEATURES, *WITHOUT_PARAMETERS)
        if name not in sources and not any(f"def {name}(" in text for text in sources.values())
    ]
    assert missing == []


def test_the_table_that_is_kept_knows_every_client() -> None:
    kept = ROOT / "docs" / "client-compatibility.json"
    recorded = json.loads(kept.read_text(encoding="utf-8"))
    assert set(CLIENTS) <= set(recorded)
