"""Access to the status pages: open on loopback without a token, otherwise by token. `/healthz` is public."""

from __future__ import annotations

import asyncio

import pytest

from chronik.config import load_config
from chronik.console.door import Door
from chronik.console.http import BadRequest
from tests.console.serving import FakeSource, console, request

TOKEN = "correct-horse"


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/readyz", "/status/groups/g", "/nothing"])
@pytest.mark.parametrize(
    "header", ["", TOKEN, "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", "Bearer gräßlich"]
)
def test_missing_or_wrong_token_is_unauthorized(path: str, header: str) -> None:
    with pytest.raises(BadRequest, match="http_token") as rejected:
        Door(TOKEN, is_open=False).check(path, header)
    assert rejected.value.status == 401
    assert TOKEN not in str(rejected.value)
    with pytest.raises(BadRequest, match="set http_token"):
        Door(None, is_open=False).check(path, header)


def test_token_is_accepted_and_healthz_is_public() -> None:
    for header in (f"Bearer {TOKEN}", f"bearer  {TOKEN} "):
        Door(TOKEN, is_open=False).check("/status", header)
    Door(TOKEN, is_open=False).check("/healthz", "")
    Door(None, is_open=False).check("/healthz", "")
    Door(None, is_open=True).check("/status", "")


def test_token_is_required_on_loopback() -> None:
    async def scenario() -> None:
        async with console(FakeSource(), token=TOKEN) as served:
            peer = await served.connect()
            assert (await peer.get("/healthz")).status == 200
            peer.send(request("/status", more=f"Authorization: Bearer {TOKEN}\r\n"))
            assert (await peer.answer()).json["node_id"] == 1
            rejected = await served.get("/status")
            assert rejected.status == 401
            assert rejected.headers["www-authenticate"] == "Bearer"

    asyncio.run(scenario())


def test_config_repr_hides_http_token() -> None:
    assert TOKEN not in repr(load_config(None, {}, http_token=TOKEN))
