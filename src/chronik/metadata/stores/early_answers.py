"""Which commands a node with `flush = "os"` answers before they are on its disk.

A power cut takes the last commands of the log, and never one before another. So what it takes of an id is the end of
its story, and its producer may go on as if nothing had happened. What then comes of that decides:

- Additions: records and offsets that stand on one are refused. None are on the disk, for they wait until it is.
- Commits: the transaction is open again, as a whole, for its markers wait as well. What its producer does next goes for
  it, too; or it is aborted when its time is up. To lose what was acknowledged is what `flush = "os"` means.
- Not aborts: the next commit of the same producer would commit what it knows to be aborted.
- Not offsets: the transaction would be committed without them.
"""

from __future__ import annotations

from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.transactions import AddToTransaction, EndTransaction


def early_with_os(command: Command) -> bool:
    return isinstance(command, AddToTransaction) or (isinstance(command, EndTransaction) and command.commit)


def never_early(command: Command) -> bool:
    return False
