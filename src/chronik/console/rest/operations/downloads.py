"""Responses that browsers save as files."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from chronik.console.http import HttpResponse

SECURITY_HEADERS: Final = (("Content-Security-Policy", "sandbox; default-src 'none'"),)
"""Headers that prevent a browser from running scripts in a file that it shows instead of saving."""


def build_file_response(content_type: str, file_name: str, data: bytes) -> HttpResponse:
    """Return a response with a file. Its name must consist of characters that are valid in names of topics."""
    return HttpResponse(HTTPStatus.OK, content_type, data, headers=build_file_headers(file_name))


def build_file_headers(file_name: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of a response that browsers save as a file."""
    return (("Content-Disposition", f'attachment; filename="{file_name}"'), *SECURITY_HEADERS)
