"""Lazy compilation of encoders and decoders, when a message version is first used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

from chronik.protocol.compiler.decoder_source import DecoderSource
from chronik.protocol.compiler.encoder_source import EncoderSource
from chronik.protocol.schema import BytesLike, Struct
from chronik.protocol.wire import UnsupportedVersion

Decoder = Callable[[bytes | memoryview, int, int], tuple[Struct, int]]
Encoder = Callable[[Struct, bytearray, list[BytesLike]], bytearray]


@cache
def compile_decoder(cls: type[Struct], version: int) -> Decoder:
    """Return the compiled decoder of a message version."""
    _check_version(cls, version)
    return cast(Decoder, DecoderSource(cls, version).compile_function("decode", f"<{cls.__name__} v{version}>"))


@cache
def compile_encoder(cls: type[Struct], version: int) -> Encoder:
    """Return the compiled encoder of a message version."""
    _check_version(cls, version)
    return cast(Encoder, EncoderSource(cls, version).compile_function("encode", f"<{cls.__name__} v{version}>"))


@cache
def compile_element_encoder(message: type[Struct], element: type[Struct], version: int) -> Encoder:
    """Return the compiled encoder of an array element of `message`."""
    _check_version(message, version)
    name = f"<{element.__name__} in {message.__name__} v{version}>"
    return cast(Encoder, EncoderSource(element, version, message).compile_function("encode", name))


def _check_version(cls: type[Struct], version: int) -> None:
    if not cls.__schema__.versions.covers(version):
        raise UnsupportedVersion(cls.__schema__.api_key, version, correlation_id=-1)
