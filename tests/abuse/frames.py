"""Frames that are none, too many of them, and connections that do nothing."""

from __future__ import annotations

import struct
from typing import Final

from chronik.protocol.messages.api_versions import ApiVersionsRequest
from tests.abuse.attack import Attack, Target

LENGTHS: Final = (0, -1, 1, 2**31 - 1, -(2**31))


def frame_lengths(target: Target) -> None:
    for _ in range(target.count(20, 400)):
        for length in LENGTHS:
            with target.connect() as client:
                client.send_bytes(struct.pack(">i", length) + bytes(64))


def api_versions_in_a_loop(target: Target) -> None:
    with target.connect() as client:
        for _ in range(target.count(200, 20_000)):
            client.send(ApiVersionsRequest(client_software_name="abuse", client_software_version="1"), 3)
            assert client.read_frame() is not None


def idle_connections(target: Target) -> None:
    for _ in range(target.count(100, 3_000)):
        target.keep(target.connect())


ATTACKS: Final = (
    Attack("frame-lengths", "frames that claim 0, -1, 1, 2^31-1 and -2^31 bytes", frame_lengths, quick=True),
    Attack("api-versions-in-a-loop", "20,000 ApiVersions on one connection", api_versions_in_a_loop),
    Attack("idle-connections", "3,000 connections that say nothing", idle_connections, quick=True),
)
