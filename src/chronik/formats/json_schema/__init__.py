"""JSON Schema: documents and their references, the Arrow types that they describe, and the decoder of values."""
