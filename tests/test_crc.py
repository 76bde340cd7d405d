"""CRC-32C as Castagnoli's, however it is loaded."""

from __future__ import annotations

import crc32c as package
import pytest

from chronik import crc


def test_the_standard_check_value() -> None:
    assert crc.crc32c(b"123456789") == 0xE3069283


def test_it_goes_on_from_what_came_before() -> None:
    assert crc.crc32c(memoryview(b"456789"), crc.crc32c(b"123")) == crc.crc32c(b"123456789")


@pytest.mark.parametrize("size", [0, 1, 7, 8, 1000, 70_000])
def test_it_is_what_the_package_computes(size: int) -> None:
    data = bytes(index * 31 % 256 for index in range(size))
    assert crc.crc32c(data) == package.crc32c(data)


def test_the_extension_is_found_without_the_package() -> None:
    """Otherwise every start would pay for the package, and nobody would notice."""
    assert crc._from_extension() is not None
