"""Registration of broker listeners. A broker with only the default listener is encoded as in earlier versions."""

from __future__ import annotations

from chronik.metadata.commands.brokers import Endpoint, RegisterBroker
from chronik.metadata.commands.envelope import Envelope, encode_command
from chronik.metadata.records import Broker
from chronik.metadata.snapshot import decode_snapshot
from tests.metadata.metadata_world import NODE, NODE_INCARNATION, MetadataWorld, build_id, encode_verified_snapshot

EARLIER_COMMAND = (
    "9501c410746865206c696665206f66206e6f64650100980a01a5686f737431cd2384c0c410000102030405060708090a0b0c0d0e0f"
    "c41000000000000000000000000000000000c3"
)
EARLIER_HASH = "1ae6c6b163d806cef6287163dfbd3ab4"
"""The state hash computed by commit 1bf886d."""
EARLIER_SNAPSHOT = (
    "9396010101c4101ae6c6b163d806cef6287163dfbd3ab4a00092039801a5686f737431cd2384c0a66f6e6c696e6501c410000102030405"
    "060708090a0b0c0d0e0fc41000000000000000000000000000000000920a9501c410746865206c696665206f66206e6f64650090919201"
    "9500a0019001"
)
"""Written by 1bf886d."""

USUAL = RegisterBroker(1, "host1", 9092, None, bytes(range(16)), bytes(16), True)
INSIDE, OUTSIDE = Endpoint("INTERNAL", "host1", 9092), Endpoint("EXTERNAL", "example.org", 443)


def with_listeners(*listeners: Endpoint) -> MetadataWorld:
    world = MetadataWorld()
    world.accept(RegisterBroker(1, "host1", 9092, None, build_id(7), build_id(8), listeners=listeners))
    return world


def addresses(broker: Broker, *names: str) -> list[tuple[str, int] | None]:
    found = [broker.listener_address(name) for name in names]
    return [None if place is None else (place.host, place.port) for place in found]


def test_broker_with_default_listener_has_earlier_encoding_and_hash() -> None:
    world = MetadataWorld()
    world.accept(USUAL)
    assert encode_command(Envelope(NODE, NODE_INCARNATION, 1, 0, USUAL)).hex() == EARLIER_COMMAND
    assert world.image.state_hash.to_bytes(16, "little").hex() == EARLIER_HASH
    (chunk,) = encode_verified_snapshot(world.image)
    assert chunk.hex() == EARLIER_SNAPSHOT
    assert decode_snapshot([bytes.fromhex(EARLIER_SNAPSHOT)]).brokers == world.image.brokers


def test_broker_without_listeners_has_plaintext_endpoint() -> None:
    broker = with_listeners().image.brokers[1]
    assert broker.endpoints == (Endpoint("PLAINTEXT", "host1", 9092),)
    assert addresses(broker, "PLAINTEXT", "EXTERNAL") == [("host1", 9092), None]


def test_each_listener_has_its_own_address() -> None:
    broker = with_listeners(INSIDE, OUTSIDE).image.brokers[1]
    assert broker.endpoints == (INSIDE, OUTSIDE)
    assert addresses(broker, "INTERNAL", "EXTERNAL", "PLAINTEXT") == [("host1", 9092), ("example.org", 443), None]


def test_listeners_are_part_of_snapshot_and_state_hash() -> None:
    world = with_listeners(INSIDE, OUTSIDE)
    restored = decode_snapshot(encode_verified_snapshot(world.image))
    assert restored.brokers == world.image.brokers == world.replay().brokers
    assert restored.state_hash == world.image.state_hash
    assert len({with_listeners(*each).image.state_hash for each in [(), (INSIDE,), (INSIDE, OUTSIDE)]}) == 3
