"""A process that has loaded all that a node needs, and forks brokers off itself: see `chronik.testing.nursery`.

It has no threads, which a fork would not copy. When whoever started it is gone, it goes too.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import socket
import sys
import time
import traceback
from typing import Any, Final, NamedTuple

from chronik.api.routing.handlers import HANDLERS
from chronik.protocol.apis import APIS
from chronik.protocol.compiling.compile import decoder, encoder
from chronik.protocol.message_types import REQUESTS, RESPONSES
from chronik.testing import broker_process

REQUEST_BYTES_MAX: Final = 1024 * 1024
"""An environment and a folder. The system's own limit for an environment is larger, and nobody's is nearly as large."""

FILES: Final = 4
"""What comes with a request: stdin, stdout and stderr of the broker, and where its pid and its end are told."""


class Child(NamedTuple):
    pid: int
    told: int


def load() -> None:
    """Imports what nodes import sooner or later; a node alone needs no Raft, but it costs a fork nothing."""
    import uvloop  # noqa: F401

    import chronik.node.alone
    import chronik.node.clustered
    import chronik.node.security.securing  # noqa: F401

    for key, api in APIS.items():
        HANDLERS[key]
        for version in range(api.min_version, api.max_version + 1):
            decoder(REQUESTS[key], version)
            encoder(RESPONSES[key], version)
    gc.collect()
    gc.freeze()  # else each child's first collection would copy everything


def serve(control: socket.socket) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is control:
                    request, files, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, FILES)
                    if not request:
                        return
                    _fork(selector, json.loads(request), files)
                else:
                    _bury(selector, key.fd, key.data)


def _fork(selector: selectors.BaseSelector, request: dict[str, Any], files: list[int]) -> None:
    pid = os.fork()
    if pid == 0:
        _live(selector, request, files)
    *streams, told = files
    for each in streams:
        os.close(each)
    os.write(told, b"%d\n" % pid)
    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, Child(pid, told))


def _bury(selector: selectors.BaseSelector, pidfd: int, child: Child) -> None:
    _, status = os.waitpid(child.pid, 0)
    selector.unregister(pidfd)
    os.close(pidfd)
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(child.told, b"%d\n" % os.waitstatus_to_exitcode(status))
    os.close(child.told)


def _live(selector: selectors.BaseSelector, request: dict[str, Any], files: list[int]) -> None:
    """What the child does, to its end."""
    code = 1
    try:
        for key in list(selector.get_map().values()):  # its siblings', and the way to whoever wants more
            os.close(key.fd)
            if isinstance(key.data, Child):
                os.close(key.data.told)
        os.setpgid(0, 0)
        for number, each in enumerate(files[:3]):
            os.dup2(each, number)
        for each in files:
            os.close(each)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        code = broker_process.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    load()
    serve(control)
    os._exit(0)


if __name__ == "__main__":
    main()
