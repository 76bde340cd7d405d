"""Content types of requests to and responses of the schema registry."""

from __future__ import annotations

import pytest

from chronik.console.registry.content_types import check_content_type, choose_content_type
from chronik.console.registry.errors import CONTENT_TYPE, RequestError

JSON = "application/json"
UNVERSIONED = "application/vnd.schemaregistry+json"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", CONTENT_TYPE),
        ("*/*", CONTENT_TYPE),
        ("application/*", CONTENT_TYPE),
        (JSON, JSON),
        (UNVERSIONED, UNVERSIONED),
        (f"{CONTENT_TYPE}, {UNVERSIONED}, {JSON}", CONTENT_TYPE),
        (f"{CONTENT_TYPE};q=0.1, {JSON}", JSON),
        ("text/html, */*;q=0.1", CONTENT_TYPE),
        ("Application/JSON; charset=utf-8", JSON),
        (f"{JSON};q=nonsense", JSON),
        (", ,", CONTENT_TYPE),
    ],
)
def test_response_has_best_accepted_content_type(accept: str, content_type: str) -> None:
    assert choose_content_type(accept) == content_type


@pytest.mark.parametrize("accept", ["text/html", f"{JSON};q=0", "*/*;q=0", "text/*, image/png"])
def test_client_that_accepts_no_supported_type_is_rejected(accept: str) -> None:
    with pytest.raises(RequestError) as raised:
        choose_content_type(accept)
    assert raised.value.status == 406


@pytest.mark.parametrize(
    "content_type",
    ["", CONTENT_TYPE, UNVERSIONED, f"{JSON}; charset=utf-8", "APPLICATION/JSON", "application/octet-stream"],
)
def test_body_of_supported_type_is_accepted(content_type: str) -> None:
    check_content_type(content_type)


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x"]
)
def test_body_that_browsers_send_to_other_sites_is_rejected(content_type: str) -> None:
    with pytest.raises(RequestError) as raised:
        check_content_type(content_type)
    assert raised.value.status == 415
