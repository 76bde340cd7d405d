"""Settings in the docs are valid, and commands in the docs exist with their options."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from chronik.cli.completion.command_tree import list_command_nodes
from chronik.client.access.settings import parse_security, read_properties
from chronik.config import CONFIG_KEYS, NodeConfig, load_config
from chronik.errors import ConfigError
from tests.docs.blocks import PAGES, ROOT, CodeBlock, all_blocks

OTHER_SETTINGS = {
    "docs/guides/from-apache-kafka.md": "of MirrorMaker 2",
    "docs/guides/backfill.md": "schemas of tables",
    "docs/guides/schemas.md": "schemas of tables",
    "docs/operate/apply.md": "a cluster's file, which is applied",
}
"""Files that are neither node nor client configuration; other tests read them."""

COMMAND = re.compile(r"(?<![\w./-])chronik ((?:[a-z][a-z-]*(?= |$|`|\n))(?: [^\n`|;&>]*)?)")
WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9]*(?:-[a-z]+)*)")


def blocks_in(language: str) -> list[CodeBlock]:
    found = [block for block in all_blocks() if block.language == language and block.page not in OTHER_SETTINGS]
    assert found
    return found


@pytest.mark.parametrize("block", blocks_in("toml"), ids=str)
def test_node_configs_in_docs_are_valid(block: CodeBlock, tmp_path: Path) -> None:
    given = tomllib.loads(block.text)
    if "peers" not in given and given.keys() & {"peer_keystore", "http"} and "node_id" not in given:
        assert given.keys() <= set(CONFIG_KEYS)  # an excerpt of a file
        return
    file = tmp_path / "node.toml"
    file.write_text(block.text, encoding="utf-8")
    assert load_config(file, {}) != NodeConfig()


def test_configuration_page_lists_exactly_the_config_keys(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(CONFIG_KEYS)
    file = tmp_path / "node.toml"
    for key in listed:
        file.write_text(f"{key} = -7.5", encoding="utf-8")  # an invalid value for every key
        with pytest.raises(ConfigError, match=f"{key} = .*: expected "):
            load_config(file, {})


@pytest.mark.parametrize("block", blocks_in("properties"), ids=str)
def test_client_settings_in_docs_are_valid(block: CodeBlock, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(block.text, encoding="utf-8")
    assert parse_security(read_properties(file)).protocol.startswith("SASL")


@pytest.mark.parametrize("block", blocks_in("json"), ids=str)
def test_json_blocks_in_docs_are_valid(block: CodeBlock) -> None:
    assert all(isinstance(json.loads(line), dict) for line in block.text.splitlines())


def test_commands_with_bootstrap_server_accept_client_config() -> None:
    options = {
        place.words: {name for option in place.options for name in option.names} for place in list_command_nodes()
    }
    connecting = {words for words, names in options.items() if "--bootstrap-server" in names}
    assert {("bench", "produce"), ("topics", "list"), ("backup",)} <= connecting
    assert [words for words in sorted(connecting) if "--client-config" not in options[words]] == []


def test_commands_and_options_in_docs_exist() -> None:
    known = {place.words: {name for option in place.options for name in option.names} for place in list_command_nodes()}
    wrong, seen = [], 0
    for page in PAGES:
        if page.parent.name == "decisions":
            continue  # decisions describe past states
        for command in COMMAND.findall(page.read_text(encoding="utf-8")):
            words = tuple(re.split(r" (?![a-z])", command)[0].split())
            place = max((each for each in known if words[: len(each)] == each), key=len)
            if not place:
                continue  # part of a sentence, not a command
            seen += 1
            unknown = set(OPTION.findall(command)) - known[place]
            wrong += [f"{page.relative_to(ROOT)}: chronik {command}: {option}" for option in sorted(unknown)]
    assert seen > 100
    assert wrong == []
