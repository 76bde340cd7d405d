"""Operations of clients, with times: the input of the checker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


@dataclass(frozen=True)
class Operation(Generic[InputT, OutputT]):
    """An operation that takes effect at one moment between its call and its return.

    Without a return, its outcome is unknown: it may take effect at any time after the call, or never.
    """

    client: int
    key: str
    input: InputT
    called_ns: int
    returned_ns: int | None = None
    output: OutputT | None = None

    @property
    def is_known(self) -> bool:
        return self.returned_ns is not None

    def __str__(self) -> str:
        if self.returned_ns is None:
            return f"client {self.client}: {self.key}: {self.input} called at {self.called_ns}, outcome unknown"
        span = f"{self.called_ns} to {self.returned_ns}"
        return f"client {self.client}: {self.key}: {self.input} gave {self.output}, {span}"
