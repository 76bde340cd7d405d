"""Node configuration from file, environment and command line, and the error messages for invalid values."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from chronik.config import VALUE_CHARACTERS_MAX, Address, initial_voters, load_config
from chronik.errors import ConfigError
from chronik.peers.handshake import derive_identity


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_command_line_overrides_environment_which_overrides_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'node_id = 1\nkafka = "127.0.0.1:1"\ndata_dir = "file"\n[broker]\n"num.partitions" = 3\n')
    config = load_config(path, {"CHRONIK_NODE_ID": "2", "CHRONIK_DATA_DIR": "environment"}, node_id=3)
    assert config.node_id == 3
    assert config.data_dir == Path("environment")
    assert config.kafka == Address("127.0.0.1", 1)
    assert config.broker == {"num.partitions": "3"}


def test_empty_configuration_uses_defaults() -> None:
    config = load_config(None, {})
    assert (config.node_id, str(config.kafka), config.flush) == (1, "127.0.0.1:9092", "group")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node_id = -1", "node_id = -1: expected a whole number from 0"),
        ("node_id = true", "node_id = True: expected a whole number"),
        ('kafka = "nowhere"', "kafka = 'nowhere': expected HOST:PORT"),
        ('kafka = "127.0.0.1:65536"', "expected HOST:PORT"),
        ('flush = "sometimes"', 'flush = \'sometimes\': expected "group" or "os"'),
        ("colour = 1", "unknown key 'colour'; expected one of"),
        ('datadir = "d"', "unknown key 'datadir'; did you mean 'data_dir'?"),
        ("http_is_default = true", "unknown key 'http_is_default'"),
        ("node_id = ", "not valid TOML"),
        pytest.param("node_id = 1" + "0" * 5000, "a number has thousands of digits", id="decimal"),
        pytest.param("[broker]\nx = 0x" + "f" * 5000, "a number has thousands of digits", id="hexadecimal"),
        ("[broker.num]\npartitions = 3", "Kafka's own names in quotes"),
    ],
)
def test_invalid_file_is_rejected_with_path_key_and_expected_value(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_config(path, {})
    assert str(path) in str(raised.value)
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_file_error_contains_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: No such file"):
        load_config(tmp_path / "absent.toml", {})


def test_ipv6_address_is_parsed_and_formatted_with_brackets() -> None:
    assert Address.parse("[::1]:9092") == Address("::1", 9092)
    assert str(Address("::1", 9092)) == "[::1]:9092"


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_wildcard_listener_requires_advertised_address(host: str) -> None:
    with pytest.raises(ConfigError, match="advertised"):
        load_config(None, {}, kafka=f"{host}:9092")
    assert load_config(None, {}, kafka=f"{host}:9092", advertised="example.org:9092").advertised is not None


SECRET = "correct horse battery staple"


@pytest.mark.parametrize(
    "text",
    [
        f'cluster_secret = ["{SECRET}"]',
        f'cluster_secret = {{ value = "{SECRET}" }}',
        f'cluster_secert = "{SECRET}"',
        f'[[peers]]\nid = 1\nkafka = "a:1"\nraft = "a:2"\ncluster_secret = "{SECRET}"',
        f'[broker]\n"ssl.keystore.password" = ["{SECRET}"]',
        f'[broker.ssl]\npassword = "{SECRET}"',
        f'cluster_secret = "{SECRET}',
    ],
)
def test_config_error_does_not_contain_secrets(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(write(tmp_path, text), {})
    assert "horse" not in "".join(traceback.format_exception(raised.value))


def test_repr_of_config_and_identity_contains_no_secret() -> None:
    config = load_config(None, {"CHRONIK_CLUSTER_SECRET": SECRET})
    assert config.cluster_secret == SECRET
    assert "horse" not in repr(config)
    identity = derive_identity("chronik", 1, SECRET, [])
    assert repr(identity.key) not in repr(identity)


@pytest.mark.parametrize(
    ("letters", "is_truncated"), [(VALUE_CHARACTERS_MAX - 2, False), (VALUE_CHARACTERS_MAX - 1, True)]
)
def test_config_error_truncates_long_value(letters: int, is_truncated: bool) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(None, {"CHRONIK_FLUSH": "x" * letters})
    assert ("characters more" in str(raised.value)) == is_truncated


def peers(*flags: bool | None) -> list[dict[str, object]]:
    tables: list[dict[str, object]] = []
    for number, flag in enumerate(flags, 1):
        voter_key = {} if flag is None else {"voter": flag}
        tables.append({"id": number, "kafka": f"a:{number}", "raft": f"b:{number}"} | voter_key)
    return tables


@pytest.mark.parametrize(
    ("flags", "voters"),
    [
        ([None], {1}),
        ([None] * 3, {1, 2, 3}),
        ([None] * 4, {1, 2, 3}),
        ([None] * 5, {1, 2, 3, 4, 5}),
        ([None] * 7, {1, 2, 3, 4, 5}),
        ([False, None, None, True], {2, 3, 4}),
        ([True] * 4, {1, 2, 3, 4}),
    ],
)
def test_initial_voters_are_configured_or_derived_from_peer_count(flags: list[bool | None], voters: set[int]) -> None:
    config = load_config(None, {}, peers=peers(*flags))
    assert initial_voters(config.peers) == voters


def test_config_without_voter_is_rejected() -> None:
    with pytest.raises(ConfigError, match="at least one voter"):
        load_config(None, {}, peers=peers(False, False))
    with pytest.raises(ConfigError, match="true or false"):
        load_config(None, {}, peers=[{"id": 1, "kafka": "a:1", "raft": "b:1", "voter": "perhaps"}])
