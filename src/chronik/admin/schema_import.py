"""Import of another cluster's schema registry. Ids and version numbers are kept; existing settings are not changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from msgspec.structs import replace

from chronik.metadata.chunking import iter_chunks
from chronik.metadata.commands.schemas import ImportableCommand, SetSchemaConfig, SetSchemaContext, SetSchemaMode
from chronik.metadata.schemas import SchemaTable
from chronik.metadata.stores.store import MetadataStore


async def import_registry_commands(store: MetadataStore, commands: Iterable[ImportableCommand]) -> None:
    """Apply commands that do not depend on each other.

    Raises:
        KafkaError: A command was rejected: an id or a version number belongs to another schema, or a limit is exceeded.
    """
    for some in iter_chunks(commands):
        needed = (_adapt_command(store.image.schemas, command) for command in some)
        await asyncio.gather(*(store.propose(command) for command in needed if command is not None))


def _adapt_command(table: SchemaTable, command: ImportableCommand) -> ImportableCommand | None:
    """Return a command that changes no existing config or mode and deletes no context; None if nothing is left."""
    match command:
        case SetSchemaConfig(name):
            known = table.settings.get(name)
            return command if known is None or not known.config else None
        case SetSchemaMode(names):
            free = tuple(name for name in names if (known := table.settings.get(name)) is None or not known.mode)
            return replace(command, names=free) if free else None
        case SetSchemaContext(name, _, True):
            exists = name in table.contexts and not table.contexts[name].is_deleted
            return replace(command, is_deleted=False) if exists else command
    return command
