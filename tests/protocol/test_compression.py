"""Compression codecs: compatibility with other implementations, and bounded decompression."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable

import cramjam
import kafka.codec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.protocol.compression import (
    Codec,
    compress,
    decompress,
    parse_codec,
    with_correct_lz4_checksum,
    with_legacy_lz4_checksum,
)
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError, RecordsTooLarge

CODECS = list(Codec)
REAL_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1024 * 1024
TEXT = b"the quick brown fox jumps over the lazy dog. " * 5_000
NOISE = random.Random(7).randbytes(200_000)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, bytes(5 * MIB)], ids=["empty", "x", "text", "noise", "zeros"])
def test_compressed_data_round_trips(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(compress(codec, data))) == data


@given(codec=st.sampled_from(CODECS), data=st.binary(max_size=5_000), repeats=st.integers(1, 50))
def test_arbitrary_bytes_round_trip(codec: Codec, data: bytes, repeats: int) -> None:
    assert decompress(codec, compress(codec, data * repeats)) == data * repeats


@pytest.mark.parametrize(
    ("codec", "level"), [(Codec.GZIP, -1), (Codec.GZIP, 9), (Codec.LZ4, 9), (Codec.ZSTD, -5), (Codec.ZSTD, 19)]
)
def test_compression_level_does_not_change_content(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level)) == TEXT


KAFKA_PYTHON: dict[Codec, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    Codec.GZIP: (kafka.codec.gzip_encode, kafka.codec.gzip_decode),
    Codec.SNAPPY: (kafka.codec.snappy_encode, kafka.codec.snappy_decode),
    Codec.LZ4: (kafka.codec.lz4_encode, kafka.codec.lz4_decode),
    Codec.ZSTD: (kafka.codec.zstd_encode, kafka.codec.zstd_decode),
}


@pytest.mark.parametrize("codec", REAL_CODECS)
@pytest.mark.parametrize("data", [b"x", TEXT, NOISE], ids=["x", "text", "noise"])
def test_compression_is_compatible_with_kafka_python(codec: Codec, data: bytes) -> None:
    if not getattr(kafka.codec, f"has_{codec.name.lower()}")():
        pytest.skip(f"kafka-python has no library for {codec.name}")
    encode, decode = KAFKA_PYTHON[codec]
    assert bytes(decode(compress(codec, data))) == data
    assert decompress(codec, bytes(encode(data))) == data


def test_snappy_is_written_as_xerial_blocks_of_32_kib() -> None:
    written = compress(Codec.SNAPPY, bytes(40_000))
    assert written[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (first_size,) = struct.unpack_from(">i", written, 16)
    assert cramjam.snappy.decompress_raw_len(written[20 : 20 + first_size]) == 32 * 1024


def test_raw_snappy_is_decompressed() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_xerial_header_in_wrong_byte_order_is_accepted() -> None:
    written = compress(Codec.SNAPPY, TEXT)
    assert decompress(Codec.SNAPPY, written[:8] + struct.pack("<ii", 1, 1) + written[16:]) == TEXT


def test_concatenated_xerial_streams_are_decompressed() -> None:
    one, empty = compress(Codec.SNAPPY, TEXT), compress(Codec.SNAPPY, b"")
    assert decompress(Codec.SNAPPY, one + one) == TEXT + TEXT
    assert decompress(Codec.SNAPPY, empty + one[16:] + empty) == TEXT
    with pytest.raises(CorruptRecords):
        decompress(Codec.SNAPPY, one + one[:15])
    with pytest.raises(CorruptRecords):  # the number of headers is limited by the number of blocks
        decompress(Codec.SNAPPY, one + empty + one)


def test_lz4_blocks_are_independent_for_java() -> None:
    flags = compress(Codec.LZ4, bytes(200_000))[4]
    assert flags & 0x20
    assert not flags & 0x04


def test_linked_lz4_blocks_are_decompressed() -> None:
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert not linked[4] & 0x20
    assert decompress(Codec.LZ4, linked) == TEXT


def test_gzip_with_several_members_is_decompressed() -> None:
    assert decompress(Codec.GZIP, compress(Codec.GZIP, b"first,") + compress(Codec.GZIP, b"second")) == b"first,second"


def test_legacy_lz4_header_checksum_covers_magic_number() -> None:
    frame = compress(Codec.LZ4, TEXT)
    legacy = with_legacy_lz4_checksum(frame)
    assert (frame[:7].hex(), legacy[:7].hex()) == ("04224d187040ad", "04224d187040ec")
    with pytest.raises(CorruptRecords):
        decompress(Codec.LZ4, legacy)
    assert with_correct_lz4_checksum(legacy) == frame
    assert with_correct_lz4_checksum(frame) == frame


def test_legacy_lz4_header_with_content_size_is_corrected() -> None:
    lz4_frame = pytest.importorskip("lz4.frame")
    frame = lz4_frame.compress(TEXT, store_size=True)
    assert frame[4] & 0x08
    broken = frame[:14] + bytes([frame[14] ^ 0xFF]) + frame[15:]
    assert decompress(Codec.LZ4, with_correct_lz4_checksum(broken)) == TEXT


@pytest.mark.parametrize("frame", [b"", b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x18\x68\x40" + bytes(8), b"x" * 40])
def test_incomplete_legacy_lz4_header_is_corrupt(frame: bytes) -> None:
    with pytest.raises(CorruptRecords):
        with_correct_lz4_checksum(frame)


@pytest.mark.parametrize("codec", CODECS)
def test_output_of_exactly_the_limit_is_accepted(codec: Codec) -> None:
    for size in (1, 1000, 64 * 1024, 300_000):
        compressed = compress(codec, bytes(size))
        assert len(decompress(codec, compressed, size)) == size
        with pytest.raises(RecordsTooLarge):
            decompress(codec, compressed, size - 1)


def test_xerial_blocks_share_the_limit() -> None:
    compressed = compress(Codec.SNAPPY, bytes(10 * 32 * 1024))
    with pytest.raises(RecordsTooLarge):
        decompress(Codec.SNAPPY, compressed, 9 * 32 * 1024)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_truncated_data_is_corrupt_at_any_length(codec: Codec) -> None:
    compressed = compress(codec, TEXT + NOISE[:100])
    # The number of xerial blocks is not stored, so a cut between blocks shows only in the records.
    block_ends = _xerial_block_ends(compressed) if codec is Codec.SNAPPY else set()
    for end in {*range(0, len(compressed), max(1, len(compressed) // 60)), len(compressed) - 1} - block_ends:
        with pytest.raises(CorruptRecords):
            decompress(codec, compressed[:end])


def _xerial_block_ends(data: bytes) -> set[int]:
    ends = {16}
    while (position := max(ends)) < len(data):
        ends.add(position + 4 + struct.unpack_from(">i", data, position)[0])
    return ends


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_damaged_data_raises_only_typed_errors(codec: Codec) -> None:
    rng = random.Random(11)
    compressed = compress(codec, TEXT[:2_000])
    refused = 0
    for _ in range(400):
        damaged = bytearray(compressed)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            assert len(decompress(codec, bytes(damaged), MIB)) <= MIB
        except (CorruptRecords, RecordsTooLarge):
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("codec", REAL_CODECS)
@pytest.mark.parametrize(
    "data", [b"garbage" * 10, NOISE[:500], b"\x82SNAPPY\x00", b"\x82SNAPPY\x00" + bytes(8) + b"\xff" * 8]
)
def test_random_bytes_are_corrupt(codec: Codec, data: bytes) -> None:
    with pytest.raises((CorruptRecords, RecordsTooLarge)):
        decompress(codec, data)


def test_unknown_codec_raises_unsupported_compression_type() -> None:
    for number in (5, 6, 7):
        with pytest.raises(KafkaError) as caught:
            parse_codec(number)
        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def _gzip_bomb(size: int) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = compressor.compress(bytes(MIB)) + compressor.flush(zlib.Z_FULL_FLUSH)
    block = compressor.compress(bytes(MIB)) + compressor.flush(zlib.Z_FULL_FLUSH)
    return head + block * (size // MIB)


def _snappy_bomb(size: int) -> bytes:
    length, rest = bytearray(), size
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    # A literal zero, then copies of the previous byte: three bytes expand to 64, the last ones to 63.
    return bytes(length) + b"\x00\x00" + b"\xfe\x01\x00" * (size // 64 - 1) + b"\xfa\x01\x00"


def _lz4_bomb(size: int) -> bytes:
    frame = compress(Codec.LZ4, bytes(64 * 1024))
    return frame[:7] + frame[7:-4] * (size // (64 * 1024)) + frame[-4:]


def _zstd_bomb(size: int) -> bytes:
    # A frame of run-length blocks: four bytes expand to 128 KiB each.
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\x00\x10\x00" * (size // (128 * 1024)) + b"\x03\x00\x00\x00"


BOMBS = {Codec.GZIP: _gzip_bomb, Codec.SNAPPY: _snappy_bomb, Codec.LZ4: _lz4_bomb, Codec.ZSTD: _zstd_bomb}

DEFUSE = """
import resource, sys
from chronik.protocol.compression import decompress
from chronik.protocol.errors import RecordsTooLarge
bomb = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(int(sys.argv[1]), bomb, 4 * 1024 * 1024)
except RecordsTooLarge:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
@pytest.mark.parametrize("codec", REAL_CODECS)
def test_decompression_bomb_uses_bounded_memory(codec: Codec) -> None:
    bomb = BOMBS[codec](1024 * MIB)
    done = subprocess.run([sys.executable, "-c", DEFUSE, str(int(codec))], input=bomb, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) < 32 * 1024


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_decompression_bombs_expand_to_a_gigabyte(codec: Codec) -> None:
    size = 2 * MIB
    bomb = BOMBS[codec](size)
    if codec is Codec.GZIP:  # this bomb has no end marker, so it has to be decompressed as a stream
        assert len(zlib.decompressobj(31).decompress(bomb)) == size + MIB
    else:
        assert decompress(codec, bomb) == bytes(size)
