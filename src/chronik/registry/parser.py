"""Parsing of schemas of all formats in threads, with a cache of parsed schemas."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from typing import Final, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from chronik.limits import MIB, PARSED_SCHEMAS_BYTES_MAX, SCHEMA_JOBS_MAX
from chronik.registry.errors import RegistryError, RegistryTimeoutError
from chronik.registry.schema import InvalidSchemaError, ResolvedReference, Schema, SchemaType

THREADS: Final = 2
"""The number of threads that parse schemas: a large schema does not delay the others."""

BRACKET_BYTES: Final = 640
COMMA_BYTES: Final = 160
"""Estimated memory of a parsed schema for each object, list or statement, and for each element, in its text."""

LARGE_SCHEMA_BYTES: Final = 16 * MIB
"""The estimated memory of a parsed schema above which schemas are parsed one at a time. Parsing needs up to twice the
memory."""

MODULES: Final = {
    SchemaType.AVRO: "chronik.registry.avro",
    SchemaType.JSON: "chronik.registry.json_schema",
    SchemaType.PROTOBUF: "chronik.registry.protobuf",
}
"""The modules that parse the formats. They are imported when the first schema of their format is parsed."""

TYPE_NUMBERS: Final = {SchemaType.AVRO: 1, SchemaType.JSON: 2, SchemaType.PROTOBUF: 3}
"""The numbers of the formats in the metadata log."""

TYPES_BY_NUMBER: Final = {number: schema_type for schema_type, number in TYPE_NUMBERS.items()}

P = ParamSpec("P")
T = TypeVar("T")


class _FormatModule(Protocol):
    """The module of a format."""

    def parse(self, text: str, references: Sequence[ResolvedReference], *, is_new: bool = True) -> Schema:
        """Parse a schema."""


class UnparsedSchema(NamedTuple):
    """A schema with all schemas to which it refers, ready to be parsed."""

    type: SchemaType
    text: str
    references: tuple[ResolvedReference, ...] = ()

    @property
    def memory_bytes(self) -> int:
        """Return the estimated memory of the parsed schema, including the schemas to which it refers."""
        texts = (self.text, *(reference.text for reference in self.references))
        brackets = sum(text.count("{") + text.count("[") + text.count(";") for text in texts)
        commas = sum(text.count(",") for text in texts)
        return 5 * sum(map(len, texts)) + BRACKET_BYTES * brackets + COMMA_BYTES * commas


class SchemaParser:
    """A parser of schemas of all formats. It may be used by several threads."""

    def __init__(self, bytes_max: int = PARSED_SCHEMAS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._large_lock = threading.Lock()
        self._cache: OrderedDict[tuple[UnparsedSchema, bool], tuple[Schema, int]] = OrderedDict()
        self._cached_bytes = 0

    @property
    def cached_bytes(self) -> int:
        """Return the estimated memory of the schemas in the cache."""
        return self._cached_bytes

    def parse(self, schema: UnparsedSchema, *, is_new: bool) -> Schema:
        """Return a parsed schema.

        Args:
            schema: The schema.
            is_new: Whether the rules for new schemas apply, which are stricter.

        Raises:
            InvalidSchemaError: The schema is invalid or too complex.
        """
        # A schema that is valid as a new one is also valid otherwise.
        for key in [(schema, True)] if is_new else [(schema, True), (schema, False)]:
            found = self._find_cached(key)
            if found is not None:
                return found
        size = schema.memory_bytes
        with self._large_lock if size > LARGE_SCHEMA_BYTES else nullcontext():
            parsed = _load_module(schema.type).parse(schema.text, schema.references, is_new=is_new)
        self._cache_schema((schema, is_new), parsed, size)
        return parsed

    def _find_cached(self, key: tuple[UnparsedSchema, bool]) -> Schema | None:
        with self._lock:
            found = self._cache.get(key)
            if found is None:
                return None
            self._cache.move_to_end(key)
            return found[0]

    def _cache_schema(self, key: tuple[UnparsedSchema, bool], parsed: Schema, size: int) -> None:
        if size > self._bytes_max:
            return
        with self._lock:
            replaced = self._cache.pop(key, None)
            self._cached_bytes += size - (0 if replaced is None else replaced[1])
            self._cache[key] = (parsed, size)
            while self._cached_bytes > self._bytes_max:
                _, (_, removed) = self._cache.popitem(last=False)
                self._cached_bytes -= removed


def _load_module(schema_type: SchemaType) -> _FormatModule:
    try:
        return cast(_FormatModule, import_module(MODULES[schema_type]))
    except ImportError as error:
        raise InvalidSchemaError(f"this node does not support schemas of type {schema_type}: {error}") from error


def _call_without_traceback(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function. Errors for clients have no traceback, which would refer to all data of a large comparison.

    The data would be in a reference cycle, which the garbage collector does not find if a node has frozen it: see
    `chronik.node.memory_tuning`.
    """
    try:
        return function(*args, **kwargs)
    except RegistryError as error:
        error.__context__ = None
        raise error.with_traceback(None) from None


class SchemaThreads:
    """The threads in which a node parses and compares schemas, so that the event loop is never held."""

    def __init__(self, jobs_max: int = SCHEMA_JOBS_MAX) -> None:
        self._jobs_max = jobs_max
        self._lock = threading.Lock()
        self._jobs = 0
        self._executor: ThreadPoolExecutor | None = None
        self._is_closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread, and return its result.

        Raises:
            RegistryTimeoutError: Too many schemas wait for a thread, or the node is stopping.
        """
        with self._lock:
            if self._is_closed:
                raise RegistryTimeoutError("The node is stopping: retry on another one")
            if self._jobs >= self._jobs_max:
                raise RegistryTimeoutError(f"{self._jobs} schemas are being parsed or compared already: retry later")
            if self._executor is None:
                self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="schemas")
            self._jobs += 1
            job = self._executor.submit(lambda: _call_without_traceback(function, *args, **kwargs))
        job.add_done_callback(self._finish)
        return await asyncio.wrap_future(job)

    def _finish(self, job: Future[T]) -> None:
        with self._lock:
            self._jobs -= 1

    async def close(self) -> None:
        """Cancel the waiting jobs, and wait until the threads have stopped."""
        with self._lock:
            self._is_closed = True
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
            await asyncio.get_running_loop().run_in_executor(None, executor.shutdown)
