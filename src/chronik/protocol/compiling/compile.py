"""Encoders and decoders, compiled when a message version is first used: a start pays for none, a broker for a few."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

from chronik.protocol.compiling.decode import DecoderSource
from chronik.protocol.compiling.encode import EncoderSource
from chronik.protocol.schema import Chunk, Struct
from chronik.protocol.wire import UnsupportedVersion

Decoder = Callable[[bytes | memoryview, int, int], tuple[Struct, int]]
Encoder = Callable[[Struct, bytearray, list[Chunk]], bytearray]


@cache
def decoder(cls: type[Struct], version: int) -> Decoder:
    _require(cls, version)
    return cast(Decoder, DecoderSource(cls, version).function("decode", f"<{cls.__name__} v{version}>"))


@cache
def encoder(cls: type[Struct], version: int) -> Encoder:
    _require(cls, version)
    return cast(Encoder, EncoderSource(cls, version).function("encode", f"<{cls.__name__} v{version}>"))


@cache
def element_encoder(message: type[Struct], element: type[Struct], version: int) -> Encoder:
    """Returns the encoder of an element of an array in `message`."""
    _require(message, version)
    name = f"<{element.__name__} in {message.__name__} v{version}>"
    return cast(Encoder, EncoderSource(element, version, message).function("encode", name))


def _require(cls: type[Struct], version: int) -> None:
    if not cls.__schema__.versions.covers(version):
        raise UnsupportedVersion(cls.__schema__.api_key, version, correlation_id=-1)
