"""A node of the version to come, as a program: it supports level 2, which has one more command and one more field.

Nothing in Chronik can be told to do this: what that version would have in its source is put there before anything else
is loaded. `Greet` is proposed in place of a broker config that is called GREETING; a topic that is deleted is given a
reason once the cluster is at level 2, and none before that.
"""

from __future__ import annotations

import sys
from functools import reduce
from operator import or_
from typing import Any, get_args

import msgspec

GREETING = "greeting"
REASON = "nobody reads it"
LEVEL = 2


def add_to_commands() -> type[msgspec.Struct]:
    """Before any other module has the commands."""
    from chronik.metadata import commands, levels

    common: dict[str, Any] = {"bases": (commands.Base,), "frozen": True, "module": commands.__name__}
    greet = msgspec.defstruct("Greet", [("text", str)], tag=90, **common)
    earlier = commands.DeleteTopic
    fields: list[Any] = [("topic_id", commands.Id), ("reason", str, "")]
    delete_topic = msgspec.defstruct("DeleteTopic", fields, tag=22, **common)
    kinds = [kind for kind in get_args(commands.Command) if kind is not earlier]
    command: Any = reduce(or_, [*kinds, delete_topic, greet])
    hints = {name: hint for name, hint in commands.Envelope.__annotations__.items() if name != "command"}
    envelope = msgspec.defstruct(
        "Envelope",
        [*((name, vars(commands).get(hint, Any)) for name, hint in hints.items()), ("command", command)],
        frozen=True,
        array_like=True,
        forbid_unknown_fields=True,
    )
    replaced: Any = commands
    replaced.DeleteTopic, replaced.Command, replaced.Envelope = delete_topic, command, envelope
    replaced._decoder = msgspec.msgpack.Decoder(envelope)
    levels.HIGHEST = LEVEL
    levels.COMMANDS["Greet"] = LEVEL
    levels.FIELDS["DeleteTopic"] = {"reason": LEVEL}
    return greet


def add_to_node(greet: type[msgspec.Struct]) -> None:
    from chronik.metadata import apply, commands, levels
    from chronik.metadata.records import Result
    from chronik.metadata.stores import raft_store
    from chronik.metadata.writer import ImageWriter

    def handle(writer: ImageWriter, command: Any, index: int) -> Result:
        configs = dict(writer.image.broker_configs.get(commands.CLUSTER_DEFAULT, {}))
        writer.set_broker_configs(commands.CLUSTER_DEFAULT, configs | {GREETING: command.text})
        return Result()

    apply.HANDLERS[greet] = handle  # type: ignore[index]
    propose = raft_store.RaftStore.propose

    async def propose_newer(self: raft_store.RaftStore, command: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(command, commands.UpdateBrokerConfig) and GREETING in command.set:
            command = greet(command.set[GREETING])
        elif isinstance(command, commands.DeleteTopic) and levels.level_of(self.image.features) >= LEVEL:
            command = msgspec.structs.replace(command, reason=REASON)
        return await propose(self, command, *arguments, **options)

    raft_store.RaftStore.propose = propose_newer  # type: ignore[method-assign]


def main() -> int:
    add_to_node(add_to_commands())
    from chronik.testing import broker_process

    return broker_process.main()


if __name__ == "__main__":
    sys.exit(main())
