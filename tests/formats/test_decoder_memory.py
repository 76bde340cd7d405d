"""Decoders of recursive types are freed with their last reference."""

from __future__ import annotations

import gc
import json

import pytest

from chronik.formats.codec import ValueFormat, WriterSchema, create_decoder

FIELDS = range(100)
SCHEMAS = {
    ValueFormat.AVRO: {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{number}", "type": ["null", "R"]} for number in FIELDS],
    },
    ValueFormat.JSON_SCHEMA: {"properties": {f"p{number}": {"$ref": "#"} for number in FIELDS}},
    ValueFormat.PROTOBUF: "message A { " + " ".join(f"optional A f{n} = {n + 1};" for n in FIELDS) + " }",
}
PAYLOADS = {ValueFormat.AVRO: bytes(len(FIELDS)), ValueFormat.JSON_SCHEMA: b"{}", ValueFormat.PROTOBUF: b""}


@pytest.mark.parametrize("format", SCHEMAS)
def test_decoder_of_a_recursive_type_is_freed_without_a_garbage_collection(format: ValueFormat) -> None:
    # A node freezes objects that survive a long garbage collection: their cycles would never be found.
    schema = SCHEMAS[format]
    text = schema if isinstance(schema, str) else json.dumps(schema)

    def decode() -> None:
        decoder = create_decoder(WriterSchema(format, text))
        assert isinstance(decoder.decode_value(PAYLOADS[format]), dict)
        assert decoder.arrow_field is not None

    decode()  # imports the modules
    gc.collect()
    decode()
    assert gc.collect() < 50
