"""The documentation of configs is complete and up to date."""

from __future__ import annotations

import re
from pathlib import Path

from chronik.configs.keys import BROKER_KEYS, TOPIC_KEYS
from chronik.configs.listing import PAGE, render_broker_config_page

ROOT = Path(__file__).parents[2]
OWN = ("chronik.", "columnar.")
"""Prefixes of configs that Kafka does not have."""


def test_broker_configs_page_is_up_to_date() -> None:
    is_current = (ROOT / PAGE).read_text(encoding="utf-8") == render_broker_config_page()
    assert is_current, f"{PAGE} is outdated: run .venv/bin/python -m chronik.configs.listing"


def test_docs_list_every_config_that_kafka_does_not_have() -> None:
    own = {name for name in (*TOPIC_KEYS, *BROKER_KEYS) if name.startswith(OWN)}
    differences = (ROOT / "docs" / "reference" / "differences-from-kafka.md").read_text(encoding="utf-8")
    (added,) = re.findall(r"^Added: (.*?)\n\n", differences, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([\w.]+)`", added)) == own, (
        '"Added" in docs/reference/differences-from-kafka.md must name these configs'
    )
