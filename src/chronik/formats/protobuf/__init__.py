"""Protobuf: a parser of `.proto` source, descriptors, and the decoder of values.

`syntax` parses source text, `names` resolves type names across files, and `descriptors` converts between source and
Google's descriptors. `decoder` needs google.protobuf, and pyarrow and ptars to decode in bulk.
"""
