from __future__ import annotations

import re
from pathlib import Path

from chronik.configs.keys import BROKER_KEYS, TOPIC_KEYS
from chronik.configs.listing import PAGE, page

ROOT = Path(__file__).parents[2]
OWN = ("chronik.", "columnar.")
"""What the names of keys begin with that Kafka does not have."""


def test_the_docs_say_which_broker_configs_have_an_effect() -> None:
    is_new = (ROOT / PAGE).read_text(encoding="utf-8") == page()
    assert is_new, f"{PAGE} is written anew by .venv/bin/python -m chronik.configs.listing"


def test_the_docs_name_every_key_that_kafka_does_not_have() -> None:
    own = {name for name in (*TOPIC_KEYS, *BROKER_KEYS) if name.startswith(OWN)}
    differences = (ROOT / "docs" / "differences-from-kafka.md").read_text(encoding="utf-8")
    (added,) = re.findall(r"^Added: (.*?)\n\n", differences, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([\w.]+)`", added)) == own, 'what "Added" in docs/differences-from-kafka.md should name'
