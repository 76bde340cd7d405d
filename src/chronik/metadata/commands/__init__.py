"""Every command that may change the image, and its form in the log.

A command carries all that its effect depends on: ids are chosen and times are read before it is proposed, so that
every node that applies it ends in the same state. On disk and between nodes it is MessagePack: `[kind, field, ...]`.

A kind is never reused or given another meaning. A field may be added only at the end and with a default, and is named
in `levels`; a node that does not know the field, or the kind, raises `UnknownCommand` and stops rather than guess.

No module in here has `from __future__ import annotations`: the decoder needs the types, and to make them of their text
takes three times as long as all the rest of making it.
"""
