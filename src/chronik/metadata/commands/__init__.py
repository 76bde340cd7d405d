"""The metadata commands and their encoding in the metadata log.

A command contains everything that its effect depends on: the proposer chooses ids and reads the clock, so every node
that applies the command reaches the same state. On disk and between nodes a command is MessagePack: `[tag, field,
...]`.

A tag is never reused. A field may only be appended, with a default, and its class declares the field's feature level
(see `chronik.metadata.levels`). A node that does not know a tag or a field raises `UnknownCommandError` and stops.

Modules with many commands avoid `from __future__ import annotations`: resolving the types from strings takes three
times as long as the rest of building the decoder.
"""
