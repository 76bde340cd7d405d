"""Which commands a standalone node with `flush = "os"` acknowledges before they are synced.

A power failure loses the last commands of the log, never one before another. A transactional id thus loses the end of
its history, and its producer may continue from the later state that it has seen. For each command the question is what
that producer can then do:

- AddToTransaction may be acknowledged early: later records and offsets that depend on it are rejected, and none are on
  disk, because they wait for the sync.
- A commit may be acknowledged early: the whole transaction is open again, because its markers wait for the sync as
  well. It is continued by the producer or aborted after its timeout. Losing acknowledged data is what `flush = "os"`
  allows.
- An abort may not: the producer's next commit would also commit the records that it considers aborted.
- Staged offsets may not: the transaction would be committed without them.
"""

from __future__ import annotations

from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.transactions import AddToTransaction, EndTransaction


def can_ack_before_sync(command: Command) -> bool:
    """Return whether `flush = "os"` allows to acknowledge the command before it is synced."""
    return isinstance(command, AddToTransaction) or (isinstance(command, EndTransaction) and command.commit)


def never_ack_early(command: Command) -> bool:
    """Return False: every command is synced before it is acknowledged."""
    return False
