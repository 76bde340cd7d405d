"""Protobuf: a parser of `.proto` source, descriptors, and the decoder and encoder of values.

`syntax` parses source text, `names` resolves type names across files, and `descriptors` converts between source and
Google's descriptors. `types` and `layout` describe what the decoder and the encoder need of a schema. Nothing here
needs Google's library; columns need pyarrow and NumPy.
"""
