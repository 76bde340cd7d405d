"""On loopback everyone may look, unless a token is set; elsewhere nobody may without it. `/healthz` is for everyone."""

from __future__ import annotations

import asyncio

import pytest

from chronik.config import load_config
from chronik.console.door import Door
from chronik.console.http import BadRequest
from tests.console.serving import FakeSource, console, request

TOKEN = "correct-horse"


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/readyz", "/status/groups/g", "/nothing"])
@pytest.mark.parametrize("shown", ["", TOKEN, "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", "Bearer gräßlich"])
def test_without_the_token_there_is_nothing(path: str, shown: str) -> None:
    with pytest.raises(BadRequest, match="http_token") as refused:
        Door(TOKEN, is_open=False).check(path, shown)
    assert refused.value.status == 401
    assert TOKEN not in str(refused.value)
    with pytest.raises(BadRequest, match="set http_token"):
        Door(None, is_open=False).check(path, shown)


def test_whoever_shows_it_may_look_and_health_is_for_everyone() -> None:
    for shown in (f"Bearer {TOKEN}", f"bearer  {TOKEN} "):
        Door(TOKEN, is_open=False).check("/status", shown)
    Door(TOKEN, is_open=False).check("/healthz", "")
    Door(None, is_open=False).check("/healthz", "")
    Door(None, is_open=True).check("/status", "")


def test_a_listener_asks_for_the_token_on_loopback_too() -> None:
    async def scenario() -> None:
        async with console(FakeSource(), token=TOKEN) as served:
            peer = await served.connect()
            assert (await peer.get("/healthz")).status == 200
            peer.send(request("/status", more=f"Authorization: Bearer {TOKEN}\r\n"))
            assert (await peer.answer()).json["node_id"] == 1
            refused = await served.get("/status")
            assert refused.status == 401
            assert refused.headers["www-authenticate"] == "Bearer"

    asyncio.run(scenario())


def test_a_token_is_in_no_representation_of_a_config() -> None:
    assert TOKEN not in repr(load_config(None, {}, http_token=TOKEN))
