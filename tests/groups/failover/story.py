"""One seed's story: clients, trouble for a while, and then the peace in which everything has to settle."""

from __future__ import annotations

import asyncio
from typing import Final

from .clients import Client
from .virtual_time import run_virtually
from .world import GROUPS, PARTITIONS, TOPIC, World

CLIENTS_PER_GROUP: Final = 3
TROUBLE_SECONDS: Final = 40.0
PEACE_SECONDS: Final = 120.0


class Story:
    def __init__(self, seed: int, *, without_epochs: bool = False) -> None:
        self.seed = seed
        self._without_epochs = without_epochs
        self.world: World
        self.replacements = 0

    def tell(self) -> World:
        """Raises AssertionError when a promise is broken, or the groups do not settle in the end."""
        run_virtually(self._tell())
        return self.world

    async def _tell(self) -> None:
        world = self.world = World(self.seed, without_epochs=self._without_epochs)
        for node in world.nodes.values():
            await node.start()
        self._clients = [
            Client(world, group, f"{group}-{number}", f"static-{number}" if number == 0 else None)
            for group in GROUPS
            for number in range(CLIENTS_PER_GROUP)
        ]
        self._running = [world.start_task(client.run()) for client in self._clients]
        trouble = world.start_task(world.make_trouble(TROUBLE_SECONDS))
        while not trouble.done():
            await asyncio.sleep(world.random.uniform(0.5, 5.0))
            if world.random.random() < 0.5:
                self._crash(world.random.randrange(len(self._clients)))
            self._fail_if_broken()
        await self._settle()
        await self._commit_once_more()
        for node in world.nodes.values():
            await node.die()

    def _crash(self, number: int) -> None:
        """The process is replaced by a new one; a static member's old one may not have noticed."""
        old = self._clients[number]
        # One that is just joining would fight with its successor for the name, and each may win.
        if old.instance is None or old.positions is None or self.world.random.random() < 0.5:
            self._running[number].cancel()
        old.is_replaced = True
        self._clients[number] = Client(self.world, old.group, f"{old.name}'", old.instance)
        self._running[number] = self.world.start_task(self._clients[number].run())
        self.replacements += 1

    def _fail_if_broken(self) -> None:
        if self.world.broken is not None:
            raise AssertionError(f"seed {self.seed}: {self.world.broken!r}") from self.world.broken

    async def _settle(self) -> None:
        deadline = self.world.clock.monotonic() + PEACE_SECONDS
        while (why := self._unsettled()) is not None:
            self._fail_if_broken()
            assert self.world.clock.monotonic() < deadline, f"seed {self.seed}: {why}"
            await asyncio.sleep(0.5)

    def _unsettled(self) -> str | None:
        world = self.world
        if len({node.image.state_hash for node in world.nodes.values()} | {world.image.state_hash}) > 1:
            return "nodes differ"
        for group in GROUPS:
            members = [client for client in self._clients if client.group == group]
            stored = world.image.groups.get(group)
            if stored is None or {each.member_id for each in stored.members} != {each.member_id for each in members}:
                return f"{group}: {stored} instead of {[client.member_id for client in members]}"
            if {client.generation for client in members} != {stored.generation}:
                return f"{group}: generations differ"
            owned = [partition for client in members for partition in client.positions or ()]
            if sorted(owned) != list(PARTITIONS):
                return f"{group}: {owned} are owned"
        return None

    async def _commit_once_more(self) -> None:
        """Everybody gets on from here: commits go through, and every node comes to know them."""
        before = self.world.commits
        goal = before + 2 * len(self._clients)
        deadline = self.world.clock.monotonic() + PEACE_SECONDS
        while self.world.commits < goal:
            self._fail_if_broken()
            assert self.world.clock.monotonic() < deadline, f"seed {self.seed}: no commits"
            await asyncio.sleep(0.5)
        await self._settle()
        for group in GROUPS:
            for partition in PARTITIONS:
                offsets = {node.image.offset(group, TOPIC, partition) for node in self.world.nodes.values()}
                assert len(offsets) == 1, f"seed {self.seed}: {offsets}"
                assert None not in offsets, f"seed {self.seed}: nothing committed for {group} {partition}"
