"""A TUN device that delays, duplicates or loses the packets that the router sends to it.

Linux can do this with netem, which many kernels lack. The packet rate of these tests is low enough for Python.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import struct
import threading
import time
from collections.abc import Mapping
from heapq import heappop, heappush
from ipaddress import IPv4Address

from tests.chaos.link_faults import SLOW_DEVICE, SLOW_MARK, Direction, LossyLink
from tests.chaos.namespaces import TUN_DEVICE, Namespace

TUNSETIFF = 0x4004_54CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
PACKET_BYTES_MAX = 64 * 1024
SOURCE, TARGET = slice(12, 16), slice(16, 20)
"""The addresses in an IPv4 header."""

ROUTES = "100"
QUEUE_PACKETS = "10000"


class SlowDevice:
    """A packet delay device, which runs on its own thread until `close`."""

    def __init__(self, router: Namespace, address: Mapping[int, str]) -> None:
        self._places = {IPv4Address(text).packed: place for place, text in address.items()}
        with router.entered():
            self._device = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(self._device, TUNSETIFF, struct.pack("16sH22x", SLOW_DEVICE.encode(), IFF_TUN | IFF_NO_PI))
        router.run("ip", "link", "set", SLOW_DEVICE, "up", "txqueuelen", QUEUE_PACKETS)
        router.run("ip", "route", "add", "default", "dev", SLOW_DEVICE, "table", ROUTES)
        router.run("ip", "rule", "add", "fwmark", str(SLOW_MARK), "lookup", ROUTES)
        self._rng = random.Random(SLOW_DEVICE)
        self._held: list[tuple[float, int, bytes]] = []
        self._count = 0
        self._lines: Mapping[Direction, LossyLink] = {}
        self._ending, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="chaos-slow-device", daemon=True)
        self._thread.start()

    def set_links(self, lines: Mapping[Direction, LossyLink]) -> None:
        self._lines = dict(lines)

    def close(self) -> None:
        os.close(self._end)
        self._thread.join()
        os.close(self._ending)
        os.close(self._device)

    def _run(self) -> None:
        while True:
            wait_s = max(0.0, self._held[0][0] - time.monotonic()) if self._held else None
            ready, _, _ = select.select([self._device, self._ending], [], [], wait_s)
            if self._ending in ready:
                return
            if self._device in ready:
                self._hold_all()
            self._pass_on()

    def _hold_all(self) -> None:
        try:
            while True:
                self._hold(os.read(self._device, PACKET_BYTES_MAX))
        except BlockingIOError:
            pass

    def _hold(self, packet: bytes) -> None:
        direction = self._places.get(packet[SOURCE], -1), self._places.get(packet[TARGET], -1)
        line = self._lines.get(direction, LossyLink())  # the fault ended while the packet was on its way
        if self._rng.random() < line.loss:
            return
        for _ in range(2 if self._rng.random() < line.twice else 1):
            self._count += 1
            due_at = time.monotonic() + line.delay_s + line.spread_s * self._rng.random()
            heappush(self._held, (due_at, self._count, packet))

    def _pass_on(self) -> None:
        while self._held and self._held[0][0] <= time.monotonic():
            _, _, packet = heappop(self._held)
            try:
                os.write(self._device, packet)
            except OSError:  # full buffer: the packet is lost, as on a real link
                return
