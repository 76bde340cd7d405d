"""CRC-32C from the C extension of the package `crc32c`, loaded without importing the package itself.

The package reads its own version through `importlib.metadata`: 10 % of a broker's start-up time, and 2 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import cast

Checksum = Callable[..., int]
"""Signature of `crc32c(data, crc=0)`, which returns the checksum of `data` or, with `crc`, continues a checksum."""


def _load_crc32c_from_extension() -> Checksum | None:
    package = find_spec("crc32c")
    directories = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("_crc32c", directories)
    if spec is None or spec.loader is None:
        return None
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    return cast(Checksum, extension.crc32c)


def _load_crc32c_from_package() -> Checksum:
    import crc32c

    return cast(Checksum, crc32c.crc32c)


crc32c: Checksum = _load_crc32c_from_extension() or _load_crc32c_from_package()
