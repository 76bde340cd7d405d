"""Network namespaces of Linux, without names: each is an open file, and is gone with the last process that holds it.
However a run ends, nothing of its networks is left on the machine.

A namespace belongs to a thread, and is inherited by the threads and processes that it starts.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TUN_DEVICE = Path("/dev/net/tun")
OF_THIS_THREAD = "/proc/thread-self/ns/net"
CLONE_NEWNET = 0x4000_0000

COMMANDS = {"ip": "iproute2", "nft": "nftables"}
"""What the networks are made with, and Debian's package of each: `tools/clients/setup network` installs them."""


class NoNamespaces(Exception):
    """Why there can be none here."""


class Namespace:
    """Made by its constructor; `close` lets go of it."""

    def __init__(self) -> None:
        """Raises NoNamespaces."""
        home = os.open(OF_THIS_THREAD, os.O_RDONLY)
        try:
            _call("unshare", CLONE_NEWNET)
            self._file = os.open(OF_THIS_THREAD, os.O_RDONLY)
            _call("setns", home, CLONE_NEWNET)
        finally:
            os.close(home)
        self.run("ip", "link", "set", "lo", "up")

    @property
    def path(self) -> str:
        """As other commands of this machine may name it while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """By this thread, and by what it starts meanwhile."""
        home = os.open(OF_THIS_THREAD, os.O_RDONLY)
        try:
            _call("setns", self._file, CLONE_NEWNET)
            try:
                yield
            finally:
                _call("setns", home, CLONE_NEWNET)
        finally:
            os.close(home)

    def run(self, *command: str, stdin: str | None = None) -> None:
        """Raises NoNamespaces with what the command had to say."""
        with self.entered():
            done = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise NoNamespaces(f"{' '.join(command)}: {done.stderr.strip()}")

    def set(self, setting: str, value: str) -> None:
        """One of /proc/sys/net, which everyone sees as that of the own namespace."""
        with self.entered():
            Path("/proc/sys/net", setting).write_text(value, encoding="ascii")

    def close(self) -> None:
        os.close(self._file)


def why_none() -> str | None:
    """None when namespaces, and all that networks between them are made of, can be had here."""
    if sys.platform != "linux":
        return f"{sys.platform} has no network namespaces"
    for command, package in COMMANDS.items():
        if shutil.which(command) is None:
            return f"the command {command} is not installed (Debian's package {package})"
    if not os.access(TUN_DEVICE, os.R_OK | os.W_OK):
        return f"{TUN_DEVICE} is missing or may not be opened"
    try:
        Namespace().close()
    except (NoNamespaces, OSError) as failure:
        return str(failure)
    return None


def _call(function: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, function)(*arguments) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise NoNamespaces(f"{function}: {reason} (network namespaces are for root: CAP_SYS_ADMIN, CAP_NET_ADMIN)")
