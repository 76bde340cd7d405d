"""The status pages, and access to them: open on loopback without a token, otherwise by token.

`/healthz` is public. Long pages are aborted when their viewer loses access.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from chronik.config import Address, load_config
from chronik.console.connection import ClientInfo, PreparedRequest, StatusPageViewer
from chronik.console.http import HttpError, HttpRequest
from chronik.console.http_client import NodeRequestError, fetch_group, fetch_status, fetch_unready_reason, http_get
from chronik.console.listener import HttpListener
from chronik.console.status_pages import ROWS_PER_CHUNK, PageAuthorizer
from chronik.health.problems import Problem, ProblemSeverity, problem_to_json
from chronik.health.reports import HealthReport
from chronik.principals import Principal
from tests.console.http_harness import DEADLINE_SECONDS, FakeSource, RawHttpClient, encode_request, serve_console

TOKEN = "correct-horse"


def test_healthz_is_ok_when_node_is_not_ready() -> None:
    async def scenario() -> None:
        source = FakeSource()
        source.reason = "no leader is known"
        async with serve_console(source) as node:
            answer = await node.get("/healthz")
            assert (answer.status, answer.body) == (200, b"ok\n")

    asyncio.run(scenario())


def test_readyz_returns_reason_when_not_ready() -> None:
    async def scenario() -> None:
        source = FakeSource()
        async with serve_console(source) as node:
            answer = await node.get("/readyz")
            assert (answer.status, answer.body) == (200, b"ready\n")
            source.reason = "no leader is known"
            answer = await node.get("/readyz")
            assert (answer.status, answer.body) == (503, b"not ready: no leader is known\n")

    asyncio.run(scenario())


@pytest.mark.parametrize(("reason", "status"), [(None, 200), ("draining", 503)])
def test_health_page_lists_problems_and_has_the_status_of_readiness(reason: str | None, status: int) -> None:
    async def scenario() -> None:
        source = FakeSource()
        source.reason = reason
        async with serve_console(source) as node:
            answer = await node.get("/health")
            assert (answer.status, answer.json) == (
                status,
                {"status": "unknown", "ready": reason is None, "unready_reason": reason},
            )
            lost = Problem("no-leader", ProblemSeverity.CRITICAL, "", 5.0, "no controller", "start voters", "/nodes")
            source.report = HealthReport(node_id=2, checked_at_s=7.0, problems=(lost,))
            answer = await node.get("/health")
            assert answer.status == status, "problems of the cluster do not change the readiness of a node"
            assert (answer.json["status"], answer.json["checked_ms"]) == ("critical", 7000)
            (problem,) = answer.json["problems"]
            assert problem == problem_to_json(lost)

    asyncio.run(scenario())


def test_status_page_returns_status_of_source() -> None:
    async def scenario() -> None:
        source = FakeSource()
        source.status_value = {"node_id": 3, "recent_hashes": [[1, "ab"], [2, "cd"]], "leader": None}
        async with serve_console(source) as node:
            answer = await node.get("/status")
            assert (answer.status, answer.json) == (200, source.status_value)
            assert answer.headers["cache-control"] == "no-store"

    asyncio.run(scenario())


@pytest.mark.parametrize("group", ["orders", "a/b", "weiß, nicht?", "100%"])
def test_group_page_accepts_any_group_id(group: str) -> None:
    async def scenario() -> None:
        source = FakeSource()
        source.groups[group] = {"group": group, "offsets": [{"topic": "t", "partition": 0, "offset": 5}]}
        async with serve_console(source) as node:
            assert await asyncio.to_thread(fetch_group, node.address, group, 10) == source.groups[group]
            assert await asyncio.to_thread(fetch_group, node.address, group + "2", 10) is None

    asyncio.run(scenario())


def test_unknown_path_returns_not_found_with_available_pages() -> None:
    async def scenario() -> None:
        async with serve_console(FakeSource()) as node:
            for path in ("/", "/statusx", "/status/groups", "/healthz/"):
                answer = await node.get(path)
                assert answer.status == 404
                assert "/healthz, /readyz, /health, /metrics, /status" in answer.json["error"]

    asyncio.run(scenario())


def test_query_string_is_ignored() -> None:
    async def scenario() -> None:
        async with serve_console(FakeSource()) as node:
            assert (await node.get("/healthz?verbose=1")).status == 200

    asyncio.run(scenario())


def test_head_returns_headers_of_get_without_body() -> None:
    async def scenario() -> None:
        async with serve_console(FakeSource()) as node:
            peer = await node.connect()
            got = await peer.get("/status")
            peer.send(encode_request("/status", "HEAD"))
            head = await peer.read_response(to_head=True)
            assert (head.status, head.headers) == (200, got.headers)
            assert (await peer.get("/healthz")).body == b"ok\n", "the HEAD response has no body"

    asyncio.run(scenario())


def test_failing_page_returns_500_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeSource):
        def status(self) -> dict[str, Any]:
            raise ZeroDivisionError

    async def scenario() -> None:
        async with serve_console(Broken()) as node:
            peer = await node.connect()
            assert (await peer.get("/status")).status == 500
            assert (await peer.get("/healthz")).status == 200

    asyncio.run(scenario())
    assert "status page failed: path=/status" in caplog.text


def test_client_fetches_status_readiness_and_metrics() -> None:
    async def scenario() -> None:
        source = FakeSource()
        async with serve_console(source) as node:
            assert await asyncio.to_thread(fetch_status, node.address, 10) == source.status_value
            assert await asyncio.to_thread(fetch_unready_reason, node.address, 10) is None
            source.reason = "it starts"
            assert await asyncio.to_thread(fetch_unready_reason, node.address, 10) == "not ready: it starts"
            status, metrics = await asyncio.to_thread(http_get, node.address, "/metrics", 10)
            assert (status, metrics.splitlines()[-1]) == (200, b"chronik_topics 7")

    asyncio.run(scenario())


def test_unreachable_node_raises_error_with_address() -> None:
    with pytest.raises(NodeRequestError, match=r"127\.0\.0\.1:1: cannot reach a node: .*refused"):
        fetch_status(Address("127.0.0.1", 1), 10)


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/readyz", "/status/groups/g", "/nothing"])
@pytest.mark.parametrize(
    "header", ["", TOKEN, "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", "Bearer gräßlich"]
)
def test_missing_or_wrong_token_is_unauthorized(path: str, header: str) -> None:
    with pytest.raises(HttpError, match="http_token") as rejected:
        PageAuthorizer(TOKEN, allows_anonymous=False).check_access(path, header)
    assert rejected.value.status == 401
    assert TOKEN not in str(rejected.value)
    with pytest.raises(HttpError, match="set http_token"):
        PageAuthorizer(None, allows_anonymous=False).check_access(path, header)


def test_token_is_accepted_and_healthz_is_public() -> None:
    for header in (f"Bearer {TOKEN}", f"bearer  {TOKEN} "):
        PageAuthorizer(TOKEN, allows_anonymous=False).check_access("/status", header)
    PageAuthorizer(TOKEN, allows_anonymous=False).check_access("/healthz", "")
    PageAuthorizer(None, allows_anonymous=False).check_access("/healthz", "")
    PageAuthorizer(None, allows_anonymous=True).check_access("/status", "")


def test_token_is_required_on_loopback() -> None:
    async def scenario() -> None:
        async with serve_console(FakeSource(), token=TOKEN) as served:
            peer = await served.connect()
            assert (await peer.get("/healthz")).status == 200
            peer.send(encode_request("/status", more=f"Authorization: Bearer {TOKEN}\r\n"))
            assert (await peer.read_response()).json["node_id"] == 1
            rejected = await served.get("/status")
            assert rejected.status == 401
            assert rejected.headers["www-authenticate"] == "Bearer"

    asyncio.run(scenario())


def test_config_repr_hides_http_token() -> None:
    assert TOKEN not in repr(load_config(None, {}, http_token=TOKEN))


class FakeApplication:
    """An application in which every client is logged in, until its access is revoked."""

    is_allowed = True

    async def prepare(self, request: HttpRequest, caller: ClientInfo) -> PreparedRequest:
        raise NotImplementedError

    async def authorize_viewer(self, request: HttpRequest, caller: ClientInfo) -> StatusPageViewer:
        return StatusPageViewer(Principal("User", "alice"), lambda: self.is_allowed)


@pytest.mark.parametrize("loses_access", [False, True])
def test_long_page_is_aborted_when_viewer_loses_access(loses_access: bool) -> None:
    application, produced = FakeApplication(), 0

    def rows() -> Iterator[dict[str, object]]:
        nonlocal produced
        for produced in range(20 * ROWS_PER_CHUNK):
            yield {"topic": "t", "partition": produced, "metadata": "x" * 4096}

    async def scenario() -> None:
        source = FakeSource()
        source.groups["g"] = {"group": "g", "offsets": rows()}
        listener = HttpListener(Address("127.0.0.1", 0), source, application=application, requires_login=True)
        address = await listener.bind()
        await listener.serve()
        peer = RawHttpClient(*await asyncio.open_connection(*address))
        peer.send(encode_request("/status/groups/g"))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while produced < ROWS_PER_CHUNK:
                await asyncio.sleep(0)
            if loses_access:
                application.is_allowed = False
                with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError, ValueError)):
                    await peer.read_response()
                assert produced < 20 * ROWS_PER_CHUNK - 1
            else:
                assert len((await peer.read_response()).json["offsets"]) == 20 * ROWS_PER_CHUNK
        peer.writer.close()
        await listener.stop()

    asyncio.run(scenario())
