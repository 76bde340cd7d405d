"""CRC-32C from the C extension."""

from __future__ import annotations

import crc32c as package
import pytest

from chronik import crc


def test_crc32c_of_standard_check_string() -> None:
    assert crc.crc32c(b"123456789") == 0xE3069283


def test_crc32c_continues_from_previous_checksum() -> None:
    assert crc.crc32c(memoryview(b"456789"), crc.crc32c(b"123")) == crc.crc32c(b"123456789")


@pytest.mark.parametrize("size", [0, 1, 7, 8, 1000, 70_000])
def test_crc32c_equals_result_of_package(size: int) -> None:
    data = bytes(index * 31 % 256 for index in range(size))
    assert crc.crc32c(data) == package.crc32c(data)


def test_c_extension_is_found_without_importing_package() -> None:
    """Without the extension, every start would import the package, which is slow."""
    assert crc._load_crc32c_from_extension() is not None
