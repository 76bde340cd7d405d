"""Modules that may be wanted later, kept as they are installed now.

A node loads a module when it is first needed. If another version was installed meanwhile, a part of that version would
come into one that runs. To load everything beforehand prevents it, but takes megabytes for what hardly anybody asks
for. So what is not loaded is kept as compiled code, compressed: a tenth of what it takes when it is loaded.
"""

from __future__ import annotations

import logging
import sys
import zlib
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from marshal import dumps, loads
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple, cast

logger = logging.getLogger("chronik.node")

PACKAGE: Final = __name__.partition(".")[0]
FOLDER: Final = Path(__file__).parent


class _Kept(NamedTuple):
    path: str
    is_package: bool
    code: bytes


class KeptModules:
    """Stands before Python's own finders in `sys.meta_path`, and is asked by every import."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def keep(self, names: Iterable[str]) -> Iterator[str]:
        """Keeps these modules and what they import, as far as it is ours and not loaded, and tells of each.

        It is a generator so that its caller can let others have a turn. What cannot be kept, such as in the midst of an
        installation, is loaded later as it is then: that is told, and ends no node that runs.
        """
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        wanted = list(names)
        while wanted:
            name = wanted.pop()
            if name in self._kept or name in sys.modules:
                continue
            try:
                wanted += self._keep(name)
            except Exception as error:
                logger.warning("%s is not kept as it is installed now: %s", name, error)
            yield name

    def _keep(self, name: str) -> list[str]:
        """Returns what it imports."""
        spec = _spec_of(name)
        if spec is None or spec.origin is None:
            raise ImportError("there is no such module")
        code = cast(SourceFileLoader, spec.loader).get_code(name)
        if code is None:
            raise ImportError("it has no code")
        imported = list(_imported_by(code))
        self._kept[name] = _Kept(spec.origin, _is_package(spec), zlib.compress(dumps(code)))
        return imported

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        kept = self._kept.get(name)
        if kept is None:
            return None
        spec = ModuleSpec(name, self, origin=kept.path, is_package=kept.is_package)  # type: ignore[arg-type] # of no base class
        spec.has_location = True
        if kept.is_package:
            spec.submodule_search_locations = [str(Path(kept.path).parent)]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """None: Python makes it, as it does for most."""

    def exec_module(self, module: ModuleType) -> None:
        exec(loads(zlib.decompress(self._kept[module.__name__].code)), vars(module))
        del self._kept[module.__name__]


def _spec_of(name: str) -> ModuleSpec | None:
    """Returns where Python finds it, whether there are sources or not. No package is loaded for that."""
    folder = FOLDER.parent.joinpath(*name.split(".")[:-1])
    return PathFinder.find_spec(name, [str(folder)])


def _is_package(spec: ModuleSpec | None) -> bool:
    return spec is not None and spec.submodule_search_locations is not None


def _imported_by(code: CodeType) -> Iterator[str]:
    """Our modules that it names, and the packages that they are in.

    Some names are not of modules that are imported, but only sound like one of the same package: to keep one too many
    does no harm.
    """
    for name in code.co_names:
        if name == PACKAGE or name.startswith(f"{PACKAGE}."):
            parts = name.split(".")
            yield from (".".join(parts[:length]) for length in range(2, len(parts) + 1))
            if _is_package(_spec_of(name)):
                within = (f"{name}.{other}" for other in code.co_names if "." not in other)
                yield from (other for other in within if _spec_of(other) is not None)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imported_by(constant)


KEPT: Final = KeptModules()
