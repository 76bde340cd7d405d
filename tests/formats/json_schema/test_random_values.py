"""The JSON Schema decoder and encoder with random schemas and values, compared with the library `jsonschema`."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from decimal import Context, localcontext

import pyarrow as pa
import pytest

from chronik.formats.codec import UndecodableValueError, ValueFormat, WriterSchema, encode_json
from chronik.formats.encoding import UnencodableValueError
from chronik.formats.json_schema.decoder import JsonSchemaDecoder
from chronik.formats.json_schema.encoder import JsonSchemaEncoder
from tests.formats.avro.random_values import get_forms
from tests.formats.json_schema.random_values import DRAFTS, Oracle, SchemaGenerator, ValueGenerator
from tests.run_size import SEED, sized

SCHEMAS = sized(60, 20_000)
PAYLOADS = 50
"""Payloads per schema."""


@pytest.fixture(autouse=True)
def exact_decimals() -> Iterator[None]:
    """The oracle computes remainders of decimals, which must not be rounded."""
    with localcontext(Context(prec=1000, Emax=10**6, Emin=-(10**6))):
        yield


def iter_schemas() -> Iterator[tuple[random.Random, dict[str, object], WriterSchema]]:
    source = random.Random(SEED)
    for _ in range(SCHEMAS):
        schema = SchemaGenerator(source, source.choice(list(DRAFTS))).generate()
        yield source, schema, WriterSchema(ValueFormat.JSON_SCHEMA, json.dumps(schema))


def test_values_of_random_schemas_are_valid_as_in_jsonschema_and_equal_in_columns() -> None:
    counts = {"valid": 0, "invalid": 0, "leftovers": 0}
    for source, schema, writer_schema in iter_schemas():
        decoder, oracle = JsonSchemaDecoder(writer_schema), Oracle(schema)
        generator = ValueGenerator(source, schema)
        payloads = [generator.generate() for _ in range(PAYLOADS)]
        decoded = decoder.decode_column(pa.array(payloads, pa.binary()))
        decoded.array.validate(full=True)
        for index, (payload, form) in enumerate(zip(payloads, get_forms(decoded, decoder.arrow_field), strict=True)):
            try:
                value, error = decoder.decode_value(payload), None
            except UndecodableValueError as problem:
                value, error = None, str(problem)
            assert decoded.errors.get(index) == error, (schema, payload)
            assert (error is None) == oracle.is_valid(payload), (schema, payload, error)
            assert encode_json(form) == encode_json(value), (schema, payload)
            counts["valid" if error is None else "invalid"] += 1
        counts["leftovers"] += len(decoded.leftovers)
    assert min(counts.values()) > SCHEMAS, counts


def test_values_of_random_schemas_are_equal_after_encoding() -> None:
    encoded = 0
    for source, schema, writer_schema in iter_schemas():
        decoder, encoder = JsonSchemaDecoder(writer_schema), JsonSchemaEncoder(writer_schema)
        generator = ValueGenerator(source, schema)
        for _ in range(PAYLOADS // 5):
            try:
                value = decoder.decode_value(generator.generate())
                payload = encoder.encode_value(value)
            except UndecodableValueError:
                continue
            except UnencodableValueError:
                continue  # the value is valid only with a null that its JSON form does not tell from a missing property
            assert encode_json(decoder.decode_value(payload)) == encode_json(value), (schema, payload)
            encoded += 1
    assert encoded > SCHEMAS * PAYLOADS // 25


def test_columns_of_random_schemas_are_equal_after_encoding() -> None:
    encoded = 0
    for source, schema, writer_schema in iter_schemas():
        decoder, encoder = JsonSchemaDecoder(writer_schema), JsonSchemaEncoder(writer_schema)
        generator = ValueGenerator(source, schema)
        decoded = decoder.decode_column(pa.array([generator.generate() for _ in range(PAYLOADS // 5)], pa.binary()))
        whole = [row for row in range(PAYLOADS // 5) if row not in decoded.errors and row not in decoded.leftovers]
        for row in whole:
            element = decoded.array.slice(row, 1)
            try:
                (payload,) = encoder.encode_column(element)
            except UnencodableValueError:
                continue
            expected = pa.array([payload], pa.binary()) if payload is not None else None
            if expected is not None:
                assert decoder.decode_column(expected).array.equals(element), (schema, payload)
                encoded += 1
    assert encoded > SCHEMAS
