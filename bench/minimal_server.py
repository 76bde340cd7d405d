"""A minimal produce server, the baseline that Chronik is measured against.

It reads frames, checks each batch's CRC, appends the batch to a file and responds: the least that a Python server can
do. It supports ApiVersions, Metadata and Produce with one partition per topic, without offsets in batches, indexes,
fsync or limits. The ratio to it shows the cost of everything else that Chronik does.
    python -m bench.minimal_server DIR PORT
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any, Final, cast

import uvloop
from crc32c import crc32c

from chronik.protocol.codec import decode_request, encode_response
from chronik.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
SUPPORTED_VERSIONS: Final = {
    PRODUCE: (3, 7),  # record batches in the non-flexible encoding, where positions are sums of lengths
    FETCH: (4, 11),  # never served: librdkafka writes record batches only to a broker that also supports this Fetch
    METADATA: (0, 12),
    API_VERSIONS: (0, 3),
}
NODE_ID: Final = 1
HOST: Final = "127.0.0.1"

WINDOW_BYTES: Final = 64 * 1024  # read size at the start of a frame; a longer frame is then read to its exact end
BUFFER_BYTES: Final = 8 * 1024 * 1024  # maximum frame size; librdkafka's frames have 1 MB

CHECKED_POSITION: Final = 21  # start of the bytes that a batch's CRC covers
_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT_TOPICS = struct.Struct(">hii")
_BATCH = struct.Struct(">qiibIhi")  # … magic, CRC, attributes, last offset delta
_RESPONSE_HEAD = struct.Struct(">iii")  # size, correlation id, topics
_RESPONSE_PARTITION = struct.Struct(">ihqqq")  # index, error code, base offset, log append time, log start offset
_RESPONSE_TAIL = struct.Struct(">i")  # throttle time

CORRUPT_MESSAGE: Final = 2


class PartitionFile:
    """The only partition of a topic: an append-only file."""

    __slots__ = ("end_offset", "file")

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.end_offset = 0

    def append(self, batch: memoryview) -> tuple[int, int]:
        """Append a batch and return its error code and base offset."""
        *_, crc, _attributes, last_offset_delta = _BATCH.unpack_from(batch)
        if crc32c(batch[CHECKED_POSITION:]) != crc:
            return CORRUPT_MESSAGE, -1
        written = os.write(self.file, batch)
        if written != len(batch):
            raise OSError(f"{written} of {len(batch)} bytes written")
        base_offset = self.end_offset
        self.end_offset = base_offset + last_offset_delta + 1
        return 0, base_offset


class MinimalServer:
    """The server's topics and request handlers."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._port = port
        self._logs: dict[bytes, PartitionFile] = {}

    def log(self, topic: bytes) -> PartitionFile:
        log = self._logs.get(topic)
        if log is None:
            log = self._logs[topic] = PartitionFile(self._directory / topic.decode())
        return log

    def handle_produce(self, version: int, correlation_id: int, frame: memoryview, position: int) -> list[bytes] | None:
        """Handle Produce v3 to v7, whose formats differ only in the log start offset (since v5)."""
        (length,) = _INT16.unpack_from(frame, position)
        acks, _timeout, topics = _ACKS_TIMEOUT_TOPICS.unpack_from(frame, position + 2 + max(length, 0))
        position += 2 + max(length, 0) + _ACKS_TIMEOUT_TOPICS.size
        parts: list[bytes] = []
        for _ in range(topics):
            (length,) = _INT16.unpack_from(frame, position)
            name_end = position + 2 + length
            parts.append(bytes(frame[position : name_end + 4]))  # topic name and number of partitions, unchanged
            log = self.log(bytes(frame[position + 2 : name_end]))
            (partitions,) = _INT32.unpack_from(frame, name_end)
            position = name_end + 4
            for _ in range(partitions):
                index, size = struct.unpack_from(">ii", frame, position)
                position += 8 + size
                error, base_offset = log.append(frame[position - size : position])
                answer = _RESPONSE_PARTITION.pack(index, error, base_offset, -1, 0)
                parts.append(answer if version >= 5 else answer[:-8])
        if acks == 0:
            return None
        size = sum(map(len, parts)) + 12
        return [_RESPONSE_HEAD.pack(size, correlation_id, topics), *parts, _RESPONSE_TAIL.pack(0)]

    def handle_other(self, frame: memoryview) -> list[Any]:
        """Handle the APIs that are not measured, with the regular codec."""
        header, request = decode_request(frame)
        response: ApiVersionsResponse | MetadataResponse
        if isinstance(request, ApiVersionsRequest):
            keys = [
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in SUPPORTED_VERSIONS.items()
            ]
            response = ApiVersionsResponse(api_keys=keys)
        elif isinstance(request, MetadataRequest):
            response = self._metadata(request)
        else:
            raise ValueError(f"unsupported API key {header.api_key}")
        return encode_response(header.correlation_id, header.api_version, response)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = [topic.name for topic in request.topics or () if topic.name is not None]
        replica_ids = [NODE_ID]
        partitions_metadata = [
            MetadataResponsePartition(
                partition_index=0, leader_id=NODE_ID, replica_nodes=replica_ids, isr_nodes=replica_ids
            )
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE_ID, host=HOST, port=self._port)],
            cluster_id="minimal",
            controller_id=NODE_ID,
            topics=[
                MetadataResponseTopic(name=name, topic_id=bytes(16), partitions=partitions_metadata) for name in names
            ],
        )


class MinimalServerConnection(asyncio.BufferedProtocol):
    """A connection that handles frames in place, so that one receive buffer is enough."""

    def __init__(self, minimal: MinimalServer) -> None:
        self._minimal = minimal
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._filled = 0
        self._read_end = WINDOW_BYTES
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer[self._filled : self._read_end]

    def buffer_updated(self, count: int) -> None:
        filled = self._filled + count
        buffer, position = self._buffer, 0
        while filled - position >= 4:
            (size,) = _SIZE.unpack_from(buffer, position)
            if not 0 < size <= BUFFER_BYTES - 4:
                self._transport.abort()
                return
            end = position + 4 + size
            if end > filled:
                break
            self._handle(buffer[position + 4 : end])
            position = end
        else:
            size = 0
        if position:
            buffer[: filled - position] = buffer[position:filled]
            filled -= position
        self._filled = filled
        self._read_end = max(WINDOW_BYTES, size + 4)

    def _handle(self, frame: memoryview) -> None:
        api_key, version, correlation_id, length = _HEADER.unpack_from(frame)
        if api_key == PRODUCE:
            response = self._minimal.handle_produce(version, correlation_id, frame, _HEADER.size + max(length, 0))
            if response is not None:
                self._transport.write(b"".join(response))
        else:
            self._transport.writelines(self._minimal.handle_other(frame))


async def serve(directory: Path, port: int) -> None:
    loop = asyncio.get_running_loop()
    minimal = MinimalServer(directory, port)
    server = await loop.create_server(lambda: MinimalServerConnection(minimal), HOST, port)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    server.close()


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m bench.minimal_server DIR PORT", file=sys.stderr)
        return 2
    uvloop.run(serve(Path(arguments[0]), int(arguments[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
