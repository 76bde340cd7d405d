"""Avro schemas compared with Apache Avro's own parser and compatibility checker, in Java."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from chronik.registry.avro import AvroSchema, parse
from chronik.registry.schema import InvalidSchemaError
from tests.pipeline.jars import list_jars, skip_without_jars
from tests.registry.avro_schemas import SchemaGenerator, mutate
from tests.run_size import SEED, sized

RecordProperty = Callable[[str, object], None]

PAIRS = sized(2000, 100_000)
AVRO = "avro"

pytestmark = pytest.mark.slow


class Verdict(NamedTuple):
    """The texts of a reader's and a writer's schema, or errors that start with `!`, and the incompatibilities."""

    reader: str
    writer: str
    incompatibilities: list[str]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    """Pairs of a reader's and a writer's schema: four of five are variants of the same schema."""
    rng = random.Random(SEED)
    generator = SchemaGenerator(rng)
    pairs = []
    for _ in range(PAIRS):
        writer = generator.generate()
        draw = rng.random()
        reader = generator.generate() if draw < 0.2 else mutate(writer, rng) if draw < 0.9 else writer
        pairs.append((json.dumps(reader), json.dumps(writer)))
    return pairs


@pytest.fixture(scope="module")
def verdicts(pairs: list[tuple[str, str]]) -> list[Verdict]:
    """Apache Avro's verdicts on the pairs."""
    skip_without_jars(AVRO)
    java = shutil.which("java")
    if java is None or shutil.which("javac") is None:
        pytest.skip("no Java compiler is installed")
    lines = "".join(f"{reader}\t{writer}\n" for reader, writer in pairs)
    jars = ":".join(map(str, list_jars(AVRO)))
    result = subprocess.run(
        [java, "-cp", jars, str(Path(__file__).with_name("AvroOracle.java"))],
        input=lines.encode(),
        capture_output=True,
        check=True,
    )
    answers = result.stdout.decode().split("\n")
    assert len(answers) == 3 * len(pairs) + 1
    return [
        Verdict(answers[index], answers[index + 1], [found for found in answers[index + 2].split("\t") if found])
        for index in range(0, 3 * len(pairs), 3)
    ]


def parse_or_none(text: str) -> AvroSchema | None:
    try:
        return parse(text, [])
    except InvalidSchemaError:
        return None


def test_generated_schemas_are_accepted_and_written_like_apache_avro(
    pairs: list[tuple[str, str]], verdicts: list[Verdict], record_property: RecordProperty
) -> None:
    invalid = 0
    for texts, verdict in zip(pairs, verdicts, strict=True):
        for text, expected in zip(texts, verdict, strict=False):
            schema = parse_or_none(text)
            assert ("!" if schema is None else schema.canonical_text) == (expected if expected[0] != "!" else "!"), text
            invalid += schema is None
    assert 0 < invalid < len(pairs) / 2
    record_property("summary", f"{2 * len(pairs)} schemas, {invalid} of them invalid, as in Apache Avro")


def test_generated_pairs_are_compatible_as_in_apache_avro(
    pairs: list[tuple[str, str]], verdicts: list[Verdict], record_property: RecordProperty
) -> None:
    types: Counter[str] = Counter()
    for texts, verdict in zip(pairs, verdicts, strict=True):
        reader, writer = map(parse_or_none, texts)
        if reader is None or writer is None:
            continue
        found = reader.find_incompatibilities(writer)
        if verdict.incompatibilities and verdict.incompatibilities[0].startswith("!"):
            message = verdict.incompatibilities[0][1:]
            assert found == [f"Unexpected exception during compatibility check: {message}"]
            types["exception"] += 1
            continue
        assert len(found) == len(verdict.incompatibilities), texts
        for incompatibility, expected in zip(found, verdict.incompatibilities, strict=True):
            error_type, path, details = expected.split(" ", 2)
            assert incompatibility.startswith(f"{{errorType:'{error_type}', description:'"), texts
            assert f"'{path}'" in incompatibility, texts
            assert incompatibility.endswith(f", additionalInfo:'{details}'}}"), texts
        types.update({expected.split(" ")[0] for expected in verdict.incompatibilities} or {"compatible"})
    assert len(types) == 8, types
    assert min(types.values()) > 2, types
    counts = ", ".join(f"{name} {count}" for name, count in sorted(types.items()))
    record_property("summary", f"verdicts equal to Apache Avro's: {counts}")


def test_normalized_schemas_are_equal_for_apache_avro(pairs: list[tuple[str, str]]) -> None:
    for reader, _ in pairs:
        if '".F"' in reader:
            continue  # Java's library writes the alias without its dot, so that it moves to the namespace of the type
        schema = parse_or_none(reader)
        if schema is None or schema.find_incompatibilities(schema):
            continue  # a field with the name and an alias of other fields is not even compatible with itself
        normalized = parse(schema.normalize(), [])
        assert normalized.canonical_text == normalized.normalize() == schema.normalize()
        assert not normalized.find_incompatibilities(schema), reader
        assert not schema.find_incompatibilities(normalized), reader
