"""The cache of parsed schemas, and the threads that parse them."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from chronik.limits import PARSED_SCHEMAS_BYTES_MAX, SCHEMA_BYTES_MAX, SCHEMA_COMPARISON_SECONDS_MAX, SCHEMA_JOBS_MAX
from chronik.registry.comparison import ComparedVersion, find_incompatibilities
from chronik.registry.errors import RegistryTimeoutError, UnprocessableSchemaError
from chronik.registry.parser import (
    BRACKET_BYTES,
    LARGE_SCHEMA_BYTES,
    THREADS,
    SchemaParser,
    SchemaThreads,
    UnparsedSchema,
)
from chronik.registry.schema import InvalidSchemaError, ResolvedReference, SchemaType
from chronik.registry.settings import CompatibilityLevel
from tests.registry.registry_node import build_record, catch_error


def build_schema(*fields: str, references: tuple[ResolvedReference, ...] = ()) -> UnparsedSchema:
    return UnparsedSchema(SchemaType.AVRO, build_record(*fields), references)


def test_parsed_schema_is_cached() -> None:
    parser = SchemaParser()
    first = parser.parse(build_schema("id"), is_new=True)
    assert parser.parse(build_schema("id"), is_new=True) is first
    assert parser.parse(build_schema("id"), is_new=False) is first
    old = parser.parse(build_schema("x"), is_new=False)
    assert parser.parse(build_schema("x"), is_new=True) is not old


def test_cache_is_bounded_by_bytes() -> None:
    size = build_schema("a").memory_bytes
    assert size < PARSED_SCHEMAS_BYTES_MAX
    parser = SchemaParser(bytes_max=2 * size)
    a, b = (parser.parse(build_schema(name), is_new=True) for name in "ab")
    assert parser.cached_bytes == 2 * size
    assert parser.parse(build_schema("a"), is_new=True) is a
    parser.parse(build_schema("c"), is_new=True)
    assert parser.cached_bytes == 2 * size
    assert parser.parse(build_schema("a"), is_new=True) is a
    assert parser.parse(build_schema("b"), is_new=True) is not b
    parser.parse(build_schema("a", "b", "c", "d", "e", "f"), is_new=True)
    assert parser.cached_bytes <= 2 * size


def test_references_count_towards_the_size() -> None:
    reference = ResolvedReference("Line", build_record("x", name="Line"))
    own, of_reference = build_schema("id"), UnparsedSchema(SchemaType.AVRO, reference.text)
    assert build_schema("id", references=(reference,)).memory_bytes == own.memory_bytes + of_reference.memory_bytes


@pytest.mark.parametrize("element", ["{}", "[]"])
def test_schema_of_many_elements_is_not_cached(element: str) -> None:
    text = f'{{"type":"int","x":[{",".join([element] * (PARSED_SCHEMAS_BYTES_MAX // BRACKET_BYTES))}]}}'
    assert len(text) < SCHEMA_BYTES_MAX
    parser = SchemaParser()
    parser.parse(UnparsedSchema(SchemaType.AVRO, text), is_new=True)
    assert parser.cached_bytes == 0


def test_large_schemas_are_parsed_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    is_parsing, most = 0, 0
    both = threading.Barrier(2)

    def parse(text: str, references: object, *, is_new: bool) -> object:
        nonlocal is_parsing, most
        is_parsing += 1
        most = max(most, is_parsing)
        with suppress(threading.BrokenBarrierError):
            both.wait(20 if text == "small" else 0.2)
        is_parsing -= 1
        return text

    monkeypatch.setattr("chronik.registry.parser._load_module", lambda _: SimpleNamespace(parse=parse))
    parser = SchemaParser()
    large = "{" * (LARGE_SCHEMA_BYTES // BRACKET_BYTES + 1)
    for texts, expected in (((large, f"{large} "), 1), (("small", "small"), 2)):
        most = 0
        both.reset()
        threads = [
            threading.Thread(
                target=parser.parse, args=(UnparsedSchema(SchemaType.AVRO, text),), kwargs={"is_new": True}
            )
            for text in texts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == expected


RECURSIVE_FIELDS = [{"name": f"f{number}", "type": ["null", "R"]} for number in range(200)]
INVALID_FIELD = {"name": "x", "type": "int", "default": "invalid"}
RECURSIVE_PROPERTIES = {f"p{number}": {"$ref": "#"} for number in range(200)}
INVALID_PROPERTY = {"x": {"$ref": "#/absent"}}
RECURSIVE_SCHEMAS: dict[tuple[SchemaType, bool], dict[str, Any]] = {
    (SchemaType.AVRO, True): {"type": "record", "name": "R", "fields": RECURSIVE_FIELDS},
    (SchemaType.AVRO, False): {"type": "record", "name": "R", "fields": [*RECURSIVE_FIELDS, INVALID_FIELD]},
    (SchemaType.JSON, True): {"properties": RECURSIVE_PROPERTIES},
    (SchemaType.JSON, False): {"properties": RECURSIVE_PROPERTIES | INVALID_PROPERTY},
}


@pytest.mark.parametrize(("schema_type", "is_valid"), RECURSIVE_SCHEMAS)
def test_recursive_schema_is_freed_without_a_garbage_collection(schema_type: SchemaType, is_valid: bool) -> None:
    # A node freezes objects that survive a long garbage collection: their cycles would never be found.
    schema = UnparsedSchema(schema_type, json.dumps(RECURSIVE_SCHEMAS[schema_type, is_valid]))

    def parse() -> None:
        try:
            parsed = SchemaParser(bytes_max=0).parse(schema, is_new=True)
        except InvalidSchemaError:
            assert not is_valid
            return
        assert is_valid
        assert parsed.normalize()
        assert parsed.find_incompatibilities(parsed) == []

    parse()  # loads the modules
    gc.collect()
    parse()
    assert gc.collect() < 100


def test_missing_package_of_a_format_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "chronik.registry.json_schema", None)
    with pytest.raises(InvalidSchemaError, match="this node does not support schemas of type JSON"):
        SchemaParser().parse(UnparsedSchema(SchemaType.JSON, "{}"), is_new=True)


def test_jobs_above_the_limit_are_rejected() -> None:
    async def scenario() -> None:
        threads, release = SchemaThreads(jobs_max=3), threading.Event()
        jobs = [asyncio.create_task(threads.run(release.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        error = await catch_error(threads.run(int))
        assert isinstance(error, RegistryTimeoutError)
        release.set()
        assert await asyncio.gather(*jobs) == [True] * 3
        assert await threads.run(int, "7") == 7
        await threads.close()
        assert isinstance(await catch_error(threads.run(int)), RegistryTimeoutError)

    assert SCHEMA_JOBS_MAX > THREADS
    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_cancelled_job_counts_until_it_has_finished() -> None:
    async def scenario() -> None:
        threads, release, started = SchemaThreads(jobs_max=1), threading.Event(), threading.Event()

        def work() -> None:
            started.set()
            release.wait()

        job = asyncio.create_task(threads.run(work))
        await asyncio.get_running_loop().run_in_executor(None, started.wait)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        assert isinstance(await catch_error(threads.run(int)), RegistryTimeoutError)
        release.set()
        await threads.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_comparison_stops_at_its_deadline() -> None:
    parser = SchemaParser()
    compared = 0

    def build_versions() -> Iterator[ComparedVersion]:
        nonlocal compared
        for number in range(1, 1000):
            compared += 1
            yield ComparedVersion(number, build_schema("id", f"f{number}=0"), (), None, None)

    parsed = parser.parse(build_schema("id"), is_new=True)
    deadline = time.monotonic() - 1
    assert SCHEMA_COMPARISON_SECONDS_MAX > 1
    with pytest.raises(RegistryTimeoutError):
        find_incompatibilities(
            parser, CompatibilityLevel.FULL_TRANSITIVE, parsed, SchemaType.AVRO, build_versions(), deadline
        )
    assert compared == 1


def test_error_of_a_schema_thread_does_not_keep_the_data_of_the_job() -> None:
    class Data:
        """An object that can be weakly referenced."""

    references: list[weakref.ref[Data]] = []

    def compare() -> None:
        data = Data()
        references.append(weakref.ref(data))
        try:
            raise InvalidSchemaError("too complex")
        except InvalidSchemaError as error:
            raise UnprocessableSchemaError(str(error)) from None

    async def scenario() -> None:
        threads = SchemaThreads()
        error = await catch_error(threads.run(compare))
        assert isinstance(error, UnprocessableSchemaError)
        await threads.close()
        assert [reference() for reference in references] == [None]

    gc.disable()  # Node processes freeze objects, so that the collector does not find all cycles.
    try:
        asyncio.run(asyncio.wait_for(scenario(), 20))
    finally:
        gc.enable()
