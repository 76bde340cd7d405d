"""Process of a fork server: imports everything that a node needs, and forks brokers.

It is started by `chronik.testing.fork_server`. It has no threads, because a fork would not copy them. It exits when the
test run closes the control socket.
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
from chronik.protocol.codec import REQUESTS, RESPONSES
from chronik.protocol.compiler import compile_decoder, compile_encoder
from chronik.testing import broker_process

REQUEST_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a fork request in bytes. It contains the environment and the working directory of the broker."""

DESCRIPTORS_PER_REQUEST: Final = 4
"""File descriptors per request: stdin, stdout, stderr of the broker, and the pipe for its pid and exit code."""


class ForkedChild(NamedTuple):
    """A forked broker."""

    pid: int
    result_fd: int


def import_modules() -> None:
    """Import the modules of all node types before forking, so that the children share them."""
    import uvloop  # noqa: F401

    import chronik.node.cluster_mode
    import chronik.node.security_setup
    import chronik.node.standalone_mode  # noqa: F401

    for key, api in APIS.items():
        HANDLERS[key]
        for version in range(api.min_version, api.max_version + 1):
            compile_decoder(REQUESTS[key], version)
            compile_encoder(RESPONSES[key], version)
    gc.collect()
    gc.freeze()  # otherwise, each child's first collection would copy all pages


def serve(control: socket.socket) -> None:
    """Fork brokers on request, and report their exit codes, until the control socket is closed."""
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is control:
                    request, files, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, DESCRIPTORS_PER_REQUEST)
                    if not request:
                        return
                    _fork(selector, json.loads(request), files)
                else:
                    _reap(selector, key.fd, key.data)


def _fork(selector: selectors.BaseSelector, request: dict[str, Any], files: list[int]) -> None:
    pid = os.fork()
    if pid == 0:
        _run_child(selector, request, files)
    *streams, told = files
    for each in streams:
        os.close(each)
    os.write(told, b"%d\n" % pid)
    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, ForkedChild(pid, told))


def _reap(selector: selectors.BaseSelector, pidfd: int, child: ForkedChild) -> None:
    _, status = os.waitpid(child.pid, 0)
    selector.unregister(pidfd)
    os.close(pidfd)
    with contextlib.suppress(BrokenPipeError):  # the test has closed the pipe
        os.write(child.result_fd, b"%d\n" % os.waitstatus_to_exitcode(status))
    os.close(child.result_fd)


def _run_child(selector: selectors.BaseSelector, request: dict[str, Any], files: list[int]) -> None:
    """Run the broker in the child process, and exit."""
    code = 1
    try:
        for key in list(selector.get_map().values()):  # descriptors of siblings and the control socket
            os.close(key.fd)
            if isinstance(key.data, ForkedChild):
                os.close(key.data.result_fd)
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
    import_modules()
    serve(control)
    os._exit(0)


if __name__ == "__main__":
    main()
