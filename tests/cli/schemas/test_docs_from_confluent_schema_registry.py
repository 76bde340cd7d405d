"""The commands in docs/guides/from-confluent-schema-registry.md are executed, and their output is compared."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from chronik.testing import Broker
from tests.cli.command_line import COMMAND, environment
from tests.console.registry.registry_api import RegistryApi
from tests.docs.blocks import ROOT, ends_with_output, parse_blocks

PAGE = ROOT / "docs" / "guides" / "from-confluent-schema-registry.md"
OLD_REGISTRY = "http://127.0.0.1:8081"
TIMEOUT_SECONDS = 120
ORDER = '{"type":"record","name":"Order","fields":[]}'
NEXT_ORDER = '{"type":"record","name":"Order","fields":[{"name":"item","type":"string","default":""}]}'


def create_old_registry(url: str) -> RegistryApi:
    """Register three versions of two subjects, and set two configs."""
    registry = RegistryApi(urlsplit(url).netloc, base_path="")
    assert registry.send("PUT", "/config", {"compatibility": "FULL"}).status == 200
    registry.register("orders-value", ORDER)
    registry.register("customers-value", '{"type":"object"}', schemaType="JSON")
    registry.register("orders-value", NEXT_ORDER)
    assert registry.send("PUT", "/config/orders-value", {"compatibility": "NONE"}).status == 200
    return registry


def test_commands_of_page_import_the_old_registry(
    chronik_broker_factory: Callable[..., Broker], tmp_path: Path
) -> None:
    old, new = chronik_broker_factory(), chronik_broker_factory()
    url = old.registry_settings()["url"]
    registry = create_old_registry(url)
    imported = RegistryApi(urlsplit(new.registry_settings()["url"]).netloc, base_path="")
    command = tmp_path / "chronik"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o700)
    environ = environment(new.bootstrap) | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    blocks = [block for block in parse_blocks(PAGE) if block.language == "sh"]
    assert len(blocks) == 4
    for block in blocks:
        done = subprocess.run(
            ["bash", "-ec", block.text.replace(OLD_REGISTRY, url)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        assert done.returncode == 0, f"{block}: {done.stderr}"
        expected = block.expected_output
        assert expected is None or ends_with_output(expected, done.stdout), f"{block} printed:\n{done.stdout}"
    assert registry.get("/mode").json == {"mode": "READONLY"}
    for path in (
        "/subjects",
        "/schemas/ids/3/versions",
        "/subjects/orders-value/versions",
        "/config",
        "/config/orders-value",
    ):
        assert imported.get(path).json == registry.get(path).json
