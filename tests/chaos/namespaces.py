"""Unnamed Linux network namespaces: each is an open file and disappears with the last process that holds it.

Nothing of a run's networks is left on the machine, however the run ends. A namespace belongs to a thread and is
inherited by the threads and processes that it starts.
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
"""The required commands and their Debian packages; `tools/clients/setup network` installs them."""


class NoNamespaces(Exception):
    """Network namespaces are not available; the message has the reason."""


class Namespace:
    """A network namespace, created by the constructor and released by `close`."""

    def __init__(self) -> None:
        """Create the namespace. Raises NoNamespaces."""
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
        """The path of the namespace for other commands, valid while this process runs."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread, and everything that it starts, into the namespace during the block."""
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
        """Run a command in the namespace. Raises NoNamespaces with the error output of the command."""
        with self.entered():
            done = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise NoNamespaces(f"{' '.join(command)}: {done.stderr.strip()}")

    def set(self, setting: str, value: str) -> None:
        """Write a setting below /proc/sys/net, which belongs to the current namespace."""
        with self.entered():
            Path("/proc/sys/net", setting).write_text(value, encoding="ascii")

    def close(self) -> None:
        os.close(self._file)


def namespaces_unavailable_reason() -> str | None:
    """Return why network namespaces are not available, or None."""
    if sys.platform != "linux":
        return f"{sys.platform} has no network namespaces"
    for command, package in COMMANDS.items():
        if shutil.which(command) is None:
            return f"the command {command} is not installed (Debian package {package})"
    if not os.access(TUN_DEVICE, os.R_OK | os.W_OK):
        return f"{TUN_DEVICE} is missing or cannot be opened"
    try:
        Namespace().close()
    except (NoNamespaces, OSError) as failure:
        return str(failure)
    return None


def _call(function: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, function)(*arguments) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise NoNamespaces(f"{function}: {reason} (network namespaces require CAP_SYS_ADMIN and CAP_NET_ADMIN)")
