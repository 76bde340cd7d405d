"""One simulated run: clients, a period of faults, and a quiet period in which all groups must stabilize."""

from __future__ import annotations

import asyncio
from typing import Final

from .clients import FailoverConsumer
from .virtual_time import run_in_virtual_time
from .world import GROUPS, PARTITIONS, TOPIC, FailoverWorld

CLIENTS_PER_GROUP: Final = 3
TROUBLE_SECONDS: Final = 40.0
PEACE_SECONDS: Final = 120.0


class FailoverScenario:
    """A simulated run for one seed."""

    def __init__(self, seed: int, *, without_epochs: bool = False) -> None:
        self.seed = seed
        self._without_epochs = without_epochs
        self.world: FailoverWorld
        self.replacements = 0

    def run(self) -> FailoverWorld:
        """Run the simulation and return its world.

        Raises:
            AssertionError: An invariant was violated, or the groups did not stabilize.
        """
        run_in_virtual_time(self._run())
        return self.world

    async def _run(self) -> None:
        world = self.world = FailoverWorld(self.seed, without_epochs=self._without_epochs)
        for node in world.nodes.values():
            await node.start()
        self._clients = [
            FailoverConsumer(world, group, f"{group}-{number}", f"static-{number}" if number == 0 else None)
            for group in GROUPS
            for number in range(CLIENTS_PER_GROUP)
        ]
        self._running = [world.start_task(client.run()) for client in self._clients]
        trouble = world.start_task(world.inject_faults(TROUBLE_SECONDS))
        while not trouble.done():
            await asyncio.sleep(world.random.uniform(0.5, 5.0))
            if world.random.random() < 0.5:
                self._crash(world.random.randrange(len(self._clients)))
            self._raise_violation()
        await self._wait_until_stable()
        await self._check_commits_complete()
        for node in world.nodes.values():
            await node.crash()

    def _crash(self, number: int) -> None:
        """Replace a client's process. The old process of a static member may continue for a while."""
        old = self._clients[number]
        # A client that is just joining would compete with its successor for the instance id, and either may win.
        if old.instance is None or old.positions is None or self.world.random.random() < 0.5:
            self._running[number].cancel()
        old.is_replaced = True
        self._clients[number] = FailoverConsumer(self.world, old.group, f"{old.name}'", old.instance)
        self._running[number] = self.world.start_task(self._clients[number].run())
        self.replacements += 1

    def _raise_violation(self) -> None:
        if self.world.violation is not None:
            raise AssertionError(f"seed {self.seed}: {self.world.violation!r}") from self.world.violation

    async def _wait_until_stable(self) -> None:
        deadline = self.world.clock.monotonic() + PEACE_SECONDS
        while (why := self._find_unstable_group()) is not None:
            self._raise_violation()
            assert self.world.clock.monotonic() < deadline, f"seed {self.seed}: {why}"
            await asyncio.sleep(0.5)

    def _find_unstable_group(self) -> str | None:
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

    async def _check_commits_complete(self) -> None:
        """Check that all members can commit and that every node sees the commits."""
        before = self.world.commits
        goal = before + 2 * len(self._clients)
        deadline = self.world.clock.monotonic() + PEACE_SECONDS
        while self.world.commits < goal:
            self._raise_violation()
            assert self.world.clock.monotonic() < deadline, f"seed {self.seed}: commits do not complete"
            await asyncio.sleep(0.5)
        await self._wait_until_stable()
        for group in GROUPS:
            for partition in PARTITIONS:
                offsets = {node.image.offset(group, TOPIC, partition) for node in self.world.nodes.values()}
                assert len(offsets) == 1, f"seed {self.seed}: {offsets}"
                assert None not in offsets, f"seed {self.seed}: no committed offset for {group} {partition}"
