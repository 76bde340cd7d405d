"""Kafka's own command line tools, run against a broker as an operator would."""

from __future__ import annotations

import pytest

from .kafka_tools import run_tool


def test_features_are_described(bootstrap: str) -> None:
    (line,) = run_tool("kafka-features", bootstrap, "describe").strip().splitlines()
    feature, epoch = line.split("Epoch:")
    assert feature.split() == [
        "Feature:",
        "metadata.version",
        "SupportedMinVersion:",
        "4.3-IV0",
        "SupportedMaxVersion:",
        "4.3-IV0",
        "FinalizedVersionLevel:",
        "4.3-IV0",
    ]
    assert int(epoch) > 0


@pytest.mark.parametrize("kind", ["users", "clients", "ips"])
def test_there_are_no_quotas_to_describe(bootstrap: str, kind: str) -> None:
    assert run_tool("kafka-configs", bootstrap, "--describe", "--entity-type", kind).strip() == ""
