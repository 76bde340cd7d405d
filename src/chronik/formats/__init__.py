"""Decoders of typed values: Avro, JSON Schema and Protobuf, in the wire formats of schema registries.

`framing` splits values into schema id and payload, `registry_client` fetches schemas by id, and `codec` defines the
interface of the decoders and creates them. Libraries such as pyarrow are imported on first use.
"""
