"""Access to the status pages: open on loopback without a token, otherwise by token. `/healthz` is public."""

from __future__ import annotations

import asyncio

import pytest

from chronik.config import load_config
from chronik.console.http import HttpError
from chronik.console.page_authorization import PageAuthorizer
from tests.console.http_harness import FakeSource, encode_request, serve_console

TOKEN = "correct-horse"


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
