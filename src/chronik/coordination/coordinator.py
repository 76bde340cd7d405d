"""A coordinator of one kind of machine: its parts, its start and end, and how machines change hands.

Machines are taken up from the image when a term begins, and let go of when it ends. A broker that others may believe to
be gone holds none: it refuses its clients, so it must not count their silence against them. There may be a hundred
thousand machines, so all this is done in slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Final, Generic

from chronik.clock import Clock
from chronik.coordination.custody import Custody
from chronik.coordination.machine import Kind, MachineT
from chronik.coordination.proposals import ImageStore, Proposals
from chronik.coordination.tenure import Tenure, changes_terms
from chronik.errors import InvariantBroken, reason_of, unexpected
from chronik.metadata.delta import Delta
from chronik.protocol.errors import ErrorCode
from chronik.scheduler import run_in_slices

log = logging.getLogger("chronik.groups.coordinator")

LOOK_SECONDS: Final = 0.5
"""How often a node looks whether it is fenced: a fraction of the shortest session that clients may have."""


class Coordinator(Generic[MachineT]):
    def __init__(
        self,
        kind: Kind[MachineT],
        topic: str,
        store: ImageStore,
        clock: Clock,
        owns: Callable[[str], Tenure | None],
        is_fenced: Callable[[], bool],
        on_fatal: Callable[[BaseException], None] | None,
    ) -> None:
        """`owns` says which keys this node coordinates, and in which term, according to the image; the leaders of
        `topic` decide that. `is_fenced` says whether others may believe that this node is gone. `on_fatal` hears of
        failures in the background; the node has to stop then."""
        self._kind = kind
        self._topic = topic
        self._on_fatal = on_fatal
        self._proposals = Proposals(store)
        self._custody = Custody(kind, clock, self._proposals, owns, is_fenced, self._fail, self.act)
        self._terms_changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # --- life ---

    async def start(self) -> None:
        """Begins to take up the machines where the last coordinator left them."""
        self._custody.is_open = True
        self._terms_changed.set()
        self._tasks = [asyncio.create_task(job, name=f"{self._kind.name} coordinator") for job in self.jobs()]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    def jobs(self) -> list[Coroutine[None, None, None]]:
        """Returns what runs until it is closed, the proposals first. A kind of machine may add jobs of its own."""
        return [self._proposals.run(), self._follow_terms(), self._look_forever()]

    def act(self, machine: MachineT, what: object) -> None:
        """Does what a machine says with `Act`; only some kinds of machines do."""
        raise InvariantBroken(f"a {self._kind.name} wants something done that nobody knows: {what!r}")

    async def close(self) -> None:
        """Answers everybody who waits, and finishes what was proposed."""
        if not self._tasks:
            return
        self._custody.is_open = False
        proposing, *others = self._tasks
        self._tasks = []
        for task in others:
            task.cancel()
        await run_in_slices(self._let_go_of_all())
        self._proposals.close()
        await asyncio.wait([proposing, *others])

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Serves nobody from now on, and sends away those who wait."""
        log.critical("%s coordinator stopped: %s", self._kind.name, reason_of(error), exc_info=unexpected(error))
        try:
            self._custody.is_open = False
            for _ in self._let_go_of_all():
                pass
        finally:
            if self._on_fatal is not None:
                self._on_fatal(error)

    # --- terms ---

    def follow(self, delta: Delta) -> None:
        """Takes in a change of the image, perhaps of who coordinates what: keys that are no longer ours are refused."""
        if changes_terms(delta, self._topic):
            self._terms_changed.set()

    def look_again(self) -> None:
        """Takes up, in slices, what acts by itself; what is in hand looks whether something is due."""
        self._terms_changed.set()

    def look(self) -> None:
        """Looks whether this node is fenced, which the image does not tell."""
        custody = self._custody
        if not custody.is_open:
            return
        if not custody.is_serving:
            custody.given_up.update(dict.fromkeys(custody))
            custody.has_left_some = True
        if custody.has_left_some:
            self._terms_changed.set()

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    async def _follow_terms(self) -> None:
        while True:
            await self._terms_changed.wait()
            self._terms_changed.clear()  # what changes from here on is looked at in the next round
            await run_in_slices(self._let_go_of_what_is_not_ours())
            await run_in_slices(self._take_up_what_is_ours())

    def _let_go_of_all(self) -> Generator[None, None, None]:
        for machine in self._custody:
            self._custody.let_go(machine)
            yield

    def _let_go_of_what_is_not_ours(self) -> Generator[None, None, None]:
        custody = self._custody
        while custody.given_up:
            custody.let_go(next(iter(custody.given_up)))
            yield
        for machine in custody:
            if not custody.holds(machine):
                custody.let_go(machine)
            yield

    def _take_up_what_is_ours(self) -> Generator[None, None, None]:
        """Takes up those that act by themselves; the others wait until somebody asks for them."""
        custody = self._custody
        custody.has_left_some = False
        for key in list(self._kind.stored):
            if not custody.is_serving:
                custody.has_left_some = True
                return
            if self._kind.acts_by_itself(key):
                tenure = custody.claim(key)
                machine = None if isinstance(tenure, ErrorCode) else custody.get(key, tenure)
                if machine is not None:
                    custody.wake(machine)
                elif tenure is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    custody.has_left_some = True
            yield
