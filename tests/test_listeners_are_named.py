"""A node's listeners by Kafka's own configs: which there are, what clients are told, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.config import load_config
from chronik.errors import ConfigError
from chronik.listeners import Address, ListenerConfig

TWO = "INTERNAL://127.0.0.1:9092,EXTERNAL://0.0.0.0:9093"
MAP = "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT"


def listeners(**broker: str) -> tuple[ListenerConfig, ...]:
    """Underscores for dots."""
    return load_config(None, {}, broker={name.replace("_", "."): value for name, value in broker.items()}).listeners


def test_the_short_form_is_one_listener_called_plaintext() -> None:
    here, there = Address("127.0.0.1", 9), Address("example.org", 8)
    assert load_config(None, {}, kafka=str(here)).listeners == (ListenerConfig("PLAINTEXT", here, here),)
    both = load_config(None, {}, kafka=str(here), advertised=str(there))
    assert both.listeners == (ListenerConfig("PLAINTEXT", here, there),)


def test_each_listener_has_its_own_address_for_clients() -> None:
    advertised = "internal://node1:9092 , External://example.org:443"
    found = listeners(listeners=TWO, advertised_listeners=advertised, listener_security_protocol_map=MAP)
    assert found == (
        ListenerConfig("INTERNAL", Address("127.0.0.1", 9092), Address("node1", 9092)),
        ListenerConfig("EXTERNAL", Address("0.0.0.0", 9093), Address("example.org", 443)),
    )


def test_a_file_names_them_by_kafkas_names(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('[broker]\n"listeners" = "PLAINTEXT://:0"\n"advertised.listeners" = "PLAINTEXT://[::1]:0"\n')
    config = load_config(path, {})
    (only,) = config.listeners
    assert only == ListenerConfig("PLAINTEXT", Address("0.0.0.0", 0), Address("::1", 0))
    assert config.kafka == only.address
    assert only.told(Address("0.0.0.0", 4711)) == Address("::1", 4711)


def test_one_that_is_not_advertised_is_told_to_nobody() -> None:
    found = listeners(listeners=TWO, advertised_listeners="INTERNAL://a:1", listener_security_protocol_map=MAP)
    assert [(listener.name, listener.told(listener.address)) for listener in found] == [
        ("INTERNAL", Address("a", 1)),
        ("EXTERNAL", None),
    ]


def test_the_one_between_brokers_stands_for_the_node() -> None:
    configs = {
        "listeners": "A://127.0.0.1:1,B://127.0.0.1:2",
        "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT",
    }
    assert [listener.name for listener in listeners(**configs)] == ["A", "B"]
    assert [listener.name for listener in listeners(**configs, inter_broker_listener_name="b")] == ["B", "A"]
    assert load_config(None, {}, broker={"listeners": "PLAINTEXT://[::1]:7"}).kafka == Address("::1", 7)


def test_ports_that_the_system_chooses_may_be_several_and_one_port_may_serve_both_families() -> None:
    map_of_two = {"listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT"}
    assert len(listeners(listeners="A://127.0.0.1:0,B://127.0.0.1:0", **map_of_two)) == 2
    assert len(listeners(listeners="A://127.0.0.1:9,B://[::1]:9", **map_of_two)) == 2


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        ({"listeners": "9092"}, "listeners = '9092': expected NAME://HOST:PORT"),
        ({"listeners": ""}, "listeners = '': expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1,"}, "expected NAME://HOST:PORT"),
        ({"listeners": "://127.0.0.1:1"}, "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://127.0.0.1:70000"}, "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:1,plaintext://a:2"}, "every name once, and PLAINTEXT stands there twice"),
        (
            {"listeners": "A://a:1,B://b:1", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"},
            "a port for each, and A and B have the same",
        ),
        (
            {"listeners": "INTERNAL://a:1"},
            'listener.security.protocol.map = "INTERNAL:PLAINTEXT" beside it: no protocol is named for INTERNAL',
        ),
        ({"listeners": "PLAINTEXT://a:1", "listener.security.protocol.map": "A:PLAINTEXT"}, "is named for PLAINTEXT"),
        ({"listeners": "SSL://a:1"}, "listeners = 'SSL://a:1': expected PLAINTEXT for SSL: this version of"),
        (
            {"listeners": "A://a:1", "listener.security.protocol.map": "A:SASL_SSL"},
            "listener.security.protocol.map = 'A:SASL_SSL': expected PLAINTEXT for A: this version",
        ),
        ({"listeners": "A://a:1", "listener.security.protocol.map": "A:TLS"}, "expected NAME:PROTOCOL"),
        ({"listeners": "A://a:1", "listener.security.protocol.map": "A:SSL,a:SSL"}, "every name once"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "an address for clients to connect to in advertised.listeners"),
        ({"listeners": "PLAINTEXT://:1"}, "an address for clients to connect to in advertised.listeners"),
        (
            {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "PLAINTEXT://[::]:1"},
            "advertised.listeners = 'PLAINTEXT://[::]:1': expected an address for clients",
        ),
        (
            {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "PLAINTEXT://:1"},
            "advertised.listeners = 'PLAINTEXT://:1': expected NAME://HOST:PORT",
        ),
        (
            {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "OTHER://a:1"},
            "expected only PLAINTEXT, which are in listeners",
        ),
        (
            {"listeners": "PLAINTEXT://a:1", "inter.broker.listener.name": "OTHER"},
            "inter.broker.listener.name = 'OTHER': expected one of PLAINTEXT",
        ),
    ],
)
def test_what_kafka_refuses_is_refused_in_one_line(broker: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, broker=broker)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_short_form_beside_the_long_one_is_refused() -> None:
    named = {"broker": {"listeners": "PLAINTEXT://a:1"}}
    with pytest.raises(ConfigError, match=r"kafka = 'a:1': expected no listeners in \[broker\] beside it"):
        load_config(None, {}, kafka="a:1", **named)
    with pytest.raises(ConfigError, match=r"advertised = 'a:1': expected no listeners in"):
        load_config(None, {"CHRONIK_ADVERTISED": "a:1"}, **named)
    with pytest.raises(ConfigError, match=r"advertised = 'a:1': expected no advertised\.listeners in"):
        load_config(None, {}, advertised="a:1", broker={"advertised.listeners": "PLAINTEXT://a:1"})


def test_kafkas_config_may_tell_clients_where_the_short_form_listens() -> None:
    (only,) = load_config(
        None, {}, kafka="0.0.0.0:9092", broker={"advertised.listeners": "PLAINTEXT://example.org:1"}
    ).listeners
    assert only == ListenerConfig("PLAINTEXT", Address("0.0.0.0", 9092), Address("example.org", 1))


def test_nobody_is_told_to_connect_everywhere() -> None:
    with pytest.raises(ConfigError, match=r"advertised = '0\.0\.0\.0:1': expected an address"):
        load_config(None, {}, advertised="0.0.0.0:1")
