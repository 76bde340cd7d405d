from __future__ import annotations

from pathlib import Path

from chronik.configs.listing import page

PAGE = Path(__file__).parents[2] / "docs" / "broker-configs.md"


def test_the_docs_say_which_broker_configs_have_an_effect() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m chronik.configs.listing > docs/broker-configs.md"
