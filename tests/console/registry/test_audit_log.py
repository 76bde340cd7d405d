"""Changes of the registry in the audit log."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
from contextlib import suppress
from typing import Any

import pytest

from chronik.console.registry import application
from tests.console.registry.operation_cases import SCHEMA
from tests.console.registry.registry_api import RegistryApi


def read_audit_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "chronik.audit"]


def test_registration_is_audited_with_its_subject(root: RegistryApi, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "chronik.audit"):
        root.register("audited-value", SCHEMA)
    (line,) = read_audit_lines(caplog)
    assert "audited-value" in json.dumps(line)
    assert "unknown" not in json.dumps(line)


def test_change_is_audited_if_its_task_is_cancelled(
    root: RegistryApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancel(call: object) -> None:
        raise asyncio.CancelledError  # as when the node closes the connection

    monkeypatch.setitem(application._FUNCTIONS, "register_schema", cancel)
    with caplog.at_level(logging.INFO, "chronik.audit"), suppress(http.client.HTTPException, OSError):
        root.post("/subjects/lost-value/versions", {"schema": SCHEMA})
    (line,) = read_audit_lines(caplog)
    assert "lost-value (outcome unknown)" in json.dumps(line)
