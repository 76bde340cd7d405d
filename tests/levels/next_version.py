"""A node of the version to come, as a program: it supports one more level, which has one more command and one more
field.

Nothing in Chronik can be told to do this: what that version would have in its source is put there before anything else
is loaded. `Greet` is proposed in place of a broker config that is called GREETING; a topic that is deleted is given a
reason once the cluster is at that level, and none before that.
"""

from __future__ import annotations

import sys
from functools import reduce
from operator import or_
from typing import Any, get_args

import msgspec

from chronik.metadata.levels import HIGHEST

GREETING = "greeting"
REASON = "nobody reads it"
LEVEL = HIGHEST + 1


def add_to_commands() -> type[msgspec.Struct]:
    """Before any other module has the commands."""
    from chronik.metadata import levels
    from chronik.metadata.commands import base, envelope, topics

    common: dict[str, Any] = {"bases": (base.Base,), "frozen": True, "module": topics.__name__}
    greet = msgspec.defstruct("Greet", [("text", str)], tag=90, **common)
    earlier = topics.DeleteTopic
    fields: list[Any] = [("topic_id", base.Id), ("reason", str, "")]
    delete_topic = msgspec.defstruct("DeleteTopic", fields, tag=22, **common)
    kinds = [kind for kind in get_args(envelope.Command) if kind is not earlier]
    command: Any = reduce(or_, [*kinds, delete_topic, greet])
    hints = {name: hint for name, hint in envelope.Envelope.__annotations__.items() if name != "command"}
    wider = msgspec.defstruct(
        "Envelope",
        [*((name, vars(envelope).get(hint, Any)) for name, hint in hints.items()), ("command", command)],
        frozen=True,
        array_like=True,
        forbid_unknown_fields=True,
    )
    kinds_of_topics: Any = topics
    kinds_of_topics.DeleteTopic = delete_topic
    replaced: Any = envelope
    replaced.Command, replaced.Envelope = command, wider
    replaced._decoder = msgspec.msgpack.Decoder(wider)
    levels.HIGHEST = LEVEL
    levels.CLASS_LEVELS[greet] = LEVEL
    levels.FIELD_LEVELS[delete_topic] = {"reason": LEVEL}
    return greet


def add_to_node(greet: type[msgspec.Struct]) -> None:
    from chronik.metadata import apply, levels
    from chronik.metadata.commands.brokers import CLUSTER_DEFAULT, UpdateBrokerConfig
    from chronik.metadata.commands.topics import DeleteTopic
    from chronik.metadata.records import Result
    from chronik.metadata.stores import raft_store
    from chronik.metadata.writer import ImageWriter

    def handle(writer: ImageWriter, command: Any, index: int) -> Result:
        configs = dict(writer.image.broker_configs.get(CLUSTER_DEFAULT, {}))
        writer.set_broker_configs(CLUSTER_DEFAULT, configs | {GREETING: command.text})
        return Result()

    apply.HANDLERS[greet] = handle  # type: ignore[index]
    propose = raft_store.RaftStore.propose

    async def propose_newer(self: raft_store.RaftStore, command: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(command, UpdateBrokerConfig) and GREETING in command.set:
            command = greet(command.set[GREETING])
        elif isinstance(command, DeleteTopic) and levels.level_of(self.image.features) >= LEVEL:
            command = msgspec.structs.replace(command, reason=REASON)
        return await propose(self, command, *arguments, **options)

    raft_store.RaftStore.propose = propose_newer  # type: ignore[method-assign]


def main() -> int:
    add_to_node(add_to_commands())
    from chronik.testing import broker_process

    return broker_process.main()


if __name__ == "__main__":
    sys.exit(main())
