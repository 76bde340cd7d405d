"""Fault injection into request handling: error responses and delays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Generic, TypeVar

from chronik.protocol.errors import ErrorCode

T = TypeVar("T")


@dataclass
class _Rule(Generic[T]):
    """A fault that is injected into the next requests of an API."""

    effect: T
    times_left: int | None
    """Number of requests that the fault still affects, or None for no limit."""


class _FaultRules(Generic[T]):
    """The injected faults by API. Faults of an API apply in the order of insertion, each until it is exhausted."""

    def __init__(self) -> None:
        self._by_api: dict[str, list[_Rule[T]]] = {}

    def add(self, api: str, effect: T, times: int | None) -> None:
        self._by_api.setdefault(api, []).append(_Rule(effect, times))

    def take(self, api: str) -> T | None:
        rules = self._by_api.get(api)
        if not rules:
            return None
        rule = rules[0]
        if rule.times_left is not None:
            rule.times_left -= 1
            if rule.times_left == 0:
                rules.pop(0)
        return rule.effect


class FaultInjector:
    """A request interceptor that makes requests fail or delays them. The broker calls it for every request."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._failures: _FaultRules[ErrorCode] = _FaultRules()
        self._delays: _FaultRules[float] = _FaultRules()

    def fail(self, api: str, code: ErrorCode, times: int | None) -> None:
        self._failures.add(api, code, times)

    def delay(self, api: str, seconds: float, times: int | None) -> None:
        self._delays.add(api, seconds, times)

    def __call__(self, api: str) -> Awaitable[ErrorCode | None] | None:
        code, seconds = self._failures.take(api), self._delays.take(api)
        if code is None and seconds is None:
            return None
        return self._hold(seconds or 0.0, code)

    @staticmethod
    async def _hold(seconds: float, code: ErrorCode | None) -> ErrorCode | None:
        await asyncio.sleep(seconds)
        return code
