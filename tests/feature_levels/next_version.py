"""A node program that simulates the next version: one more feature level with a new command and a new field.

The source is patched before any other module is loaded. `Greet` is proposed instead of a broker config called GREETING;
a deleted topic gets a reason if the cluster has reached the new level.
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
    """Add the new command and field. Must run before other modules import the commands."""
    from chronik.metadata import levels
    from chronik.metadata.commands import base, envelope, topics

    common: dict[str, Any] = {"bases": (base.CommandBase,), "frozen": True, "module": topics.__name__}
    greet = msgspec.defstruct("Greet", [("text", str)], tag=120, **common)
    earlier = topics.DeleteTopic
    fields: list[Any] = [("topic_id", base.UuidBytes), ("reason", str, "")]
    delete_topic = msgspec.defstruct("DeleteTopic", fields, tag=22, **common)
    command_classes = [kind for kind in get_args(envelope.Command) if kind is not earlier]
    command: Any = reduce(or_, [*command_classes, delete_topic, greet])
    hints = {name: hint for name, hint in envelope.Envelope.__annotations__.items() if name != "command"}
    wider_envelope = msgspec.defstruct(
        "Envelope",
        [*((name, vars(envelope).get(hint, Any)) for name, hint in hints.items()), ("command", command)],
        frozen=True,
        array_like=True,
        forbid_unknown_fields=True,
    )
    topics_module: Any = topics
    topics_module.DeleteTopic = delete_topic
    envelope_module: Any = envelope
    envelope_module.Command, envelope_module.Envelope = command, wider_envelope
    envelope_module._decoder = msgspec.msgpack.Decoder(wider_envelope)
    levels.HIGHEST = LEVEL
    levels.CLASS_LEVELS[greet] = LEVEL
    levels.FIELD_LEVELS[delete_topic] = {"reason": LEVEL}
    return greet


def add_to_node(greet: type[msgspec.Struct]) -> None:
    from chronik.metadata import apply, levels
    from chronik.metadata.commands.brokers import CLUSTER_DEFAULT, UpdateBrokerConfig
    from chronik.metadata.commands.topics import DeleteTopic
    from chronik.metadata.records import ApplyResult
    from chronik.metadata.stores import raft_store
    from chronik.metadata.writer import ImageWriter

    def handle(writer: ImageWriter, command: Any, index: int) -> ApplyResult:
        configs = dict(writer.image.broker_configs.get(CLUSTER_DEFAULT, {}))
        writer.set_broker_configs(CLUSTER_DEFAULT, configs | {GREETING: command.text})
        return ApplyResult()

    apply.HANDLERS[greet] = handle  # type: ignore[index]
    propose = raft_store.RaftStore.propose

    async def propose_newer(self: raft_store.RaftStore, command: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(command, UpdateBrokerConfig) and GREETING in command.set:
            command = greet(command.set[GREETING])
        elif isinstance(command, DeleteTopic) and levels.get_cluster_level(self.image.features) >= LEVEL:
            command = msgspec.structs.replace(command, reason=REASON)
        return await propose(self, command, *arguments, **options)

    raft_store.RaftStore.propose = propose_newer  # type: ignore[method-assign]


def main() -> int:
    add_to_node(add_to_commands())
    from chronik.testing import broker_process

    return broker_process.main()


if __name__ == "__main__":
    sys.exit(main())
