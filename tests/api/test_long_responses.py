"""Long responses are built in slices, with a yield per element, and limited in size; large requests use a thread."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest

from chronik.api.shared.long_responses import ResponseElements
from chronik.limits import DECODED_INLINE_BYTES_MAX, LISTING_RESPONSE_BYTES_MAX
from chronik.metadata import chunking
from chronik.metadata.chunking import YieldTimer, iter_chunks
from chronik.protocol.codec import RequestHeader, encode_element, encode_request
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.raw import RawClient

VERSION = 12

API = Path(__file__).parents[2] / "src" / "chronik" / "api"


def test_pace_yields_to_other_tasks_when_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "SLICE_SECONDS", 0.0)

    async def busy(iterations: list[str]) -> None:
        pace = YieldTimer()
        for _ in range(3):
            iterations.append("busy")
            await pace.yield_if_due()

    async def scenario() -> None:
        iterations: list[str] = []
        task = asyncio.ensure_future(busy(iterations))
        while not task.done():
            iterations.append("other")
            await asyncio.sleep(0)
        assert iterations == ["other", "busy"] * 3 + ["other"]

    asyncio.run(scenario())


def test_chunks_contain_all_elements_in_order() -> None:
    for count in (0, 1, 500, 501, 1700):
        chunks = list(iter_chunks(range(count)))
        assert [each for chunk in chunks for each in chunk] == list(range(count))


def test_response_elements_beyond_limit_are_rejected() -> None:
    topic = MetadataResponseTopic(name="t" * 100)
    size = len(encode_element(MetadataResponse, topic, VERSION))
    elements = ResponseElements(MetadataResponse, VERSION, bytes_max=3 * size)
    for _ in range(3):
        elements.add(topic)
    with pytest.raises(KafkaError) as full:
        elements.add(topic)
    assert full.value.code is ErrorCode.INVALID_REQUEST
    elements.add_error(MetadataResponseTopic(name="t", error_code=full.value.code))
    assert len(elements.to_list(MetadataResponseTopic)) == 4


def test_default_response_limit_is_40_mib() -> None:
    largest = ResponseElements(MetadataResponse, VERSION)
    largest.add(bytes(LISTING_RESPONSE_BYTES_MAX))
    with pytest.raises(KafkaError):
        ResponseElements(MetadataResponse, VERSION).add(bytes(LISTING_RESPONSE_BYTES_MAX + 1))


@pytest.mark.parametrize("extra", [0, 1])
def test_request_decoded_in_thread_gets_normal_response(client: RawClient, extra: int) -> None:
    def request(letters: int) -> MetadataRequest:
        names = [f"unknown-{number:05d}".ljust(200, "x") for number in range(1_200)]
        names.append("y" * letters)
        topics = [MetadataRequestTopic(name=name) for name in names]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    header = RequestHeader(3, 4, 1, "raw")
    missing = DECODED_INLINE_BYTES_MAX - (len(encode_request(header, request(0))) - 4)
    wanted = request(missing + extra)
    assert len(encode_request(header, wanted)) - 4 == DECODED_INLINE_BYTES_MAX + extra
    response = client.request(wanted, 4, MetadataResponse)
    assert len(response.topics) == 1_201
    assert {topic.error_code for topic in response.topics[:-1]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_malformed_large_request_closes_connection(client: RawClient) -> None:
    header = encode_request(RequestHeader(3, 4, 1, "raw"), MetadataRequest(topics=[]))[4:-5]
    client.send_frame(header + b"\x7f\xff\xff\xff" + bytes(DECODED_INLINE_BYTES_MAX))
    assert client.wait_for_close()


def is_bare_yield(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield) and statement.value.value is None


def loops_with_steps(module: ast.Module) -> list[ast.For | ast.While]:
    return [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.For | ast.While)
        and any(is_bare_yield(inner) for statement in node.body for inner in ast.walk(statement))
    ]


def skips_its_yield(loop: ast.For | ast.While) -> bool:
    """Return whether a `continue` of the loop precedes every `yield`: elements that it skips cannot be interrupted."""
    first_yield = min(
        inner.lineno
        for statement in loop.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Expr) and is_bare_yield(inner)
    )
    skips = [
        inner.lineno for statement in loop.body for inner in ast.walk(statement) if isinstance(inner, ast.Continue)
    ]
    return any(line < first_yield for line in skips)


def test_listings_yield_before_skipping_elements() -> None:
    loops = 0
    for path in sorted(API.rglob("*.py")):
        for loop in loops_with_steps(ast.parse(path.read_text(encoding="utf-8"))):
            loops += 1
            assert not skips_its_yield(loop), f"{path.name}:{loop.lineno}: yield before the first `continue`"
    assert loops > 10


@pytest.mark.parametrize(("body", "skips"), [("    continue\n    yield", True), ("    yield\n    continue", False)])
def test_check_detects_continue_before_yield(body: str, skips: bool) -> None:
    source = "def steps():\n  for each in x:\n" + "\n".join(f"  {line}" for line in body.split("\n"))
    (loop,) = loops_with_steps(ast.parse(source))
    assert skips_its_yield(loop) is skips
