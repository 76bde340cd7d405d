"""A schema registry over HTTP that tests can stop, start again and make fail."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID


class _Server(ThreadingHTTPServer):
    """A server that closes its connections when it is closed."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._open: list[socket.socket] = []
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.append(request)
        super().process_request(request, client_address)

    def server_close(self) -> None:
        super().server_close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class HttpRegistry:
    """A registry with the paths that the client requests. Schemas get consecutive ids from 1 on."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.failures: list[tuple[int, dict[str, Any]]] = []
        """Responses to send instead of the next ones."""
        self.hidden_requests: dict[str, int] = {}
        """Number of requests of a path that are answered as if the schema did not exist."""
        self._documents: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._port = 0
        self._server: _Server | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65536  # otherwise a response is several packets, for which the client delays its acknowledgement

            def do_GET(self) -> None:
                self._respond(*registry.handle_get(self.path, dict(self.headers)))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._respond(*registry.handle_post(self.path, dict(self.headers), json.loads(body)))

            def _respond(self, status: int, document: Any) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def add(self, subject: str, text: Any, type: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """Register a schema, given as text or as a JSON document, and return its id."""
        document: dict[str, Any] = {"schema": text if isinstance(text, str) else json.dumps(text), "schemaType": type}
        document |= {"references": references} if references else {}
        if document not in self._documents:
            self._documents.append(document)
        id = self._documents.index(document) + 1
        versions = self._subjects.setdefault(subject, [])
        if id not in versions:
            versions.append(id)
        return id

    def guid(self, id: int) -> UUID:
        return UUID(int=id)

    def handle_get(self, url: str, headers: dict[str, str]) -> tuple[int, Any]:
        self.requests.append(url)
        self.headers.append(headers)
        if self.failures:
            return self.failures.pop(0)
        path = urlsplit(url).path
        if self.hidden_requests.get(path, 0):
            self.hidden_requests[path] -= 1
            return 404, {"error_code": 40403, "message": "Schema not found"}
        match [unquote(part) for part in path.split("/")[1:]]:
            case ["schemas", "ids", id] if 0 < int(id) <= len(self._documents):
                return 200, self._documents[int(id) - 1]
            case ["schemas", "guids", guid] if 0 < UUID(guid).int <= len(self._documents):
                return 200, self._documents[UUID(guid).int - 1]
            case ["schemas", _, key]:
                return 404, {"error_code": 40403, "message": f"Schema {key} not found"}
            case ["subjects", subject, "versions", version] if subject in self._subjects:
                ids = self._subjects[subject]
                number = len(ids) if version == "latest" else int(version)
                id_of_version = ids[number - 1]
                return 200, {
                    "subject": subject,
                    "version": number,
                    "id": id_of_version,
                    **self._documents[id_of_version - 1],
                }
            case ["subjects", subject, *_]:
                return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        return 404, {"error": "no such page"}

    def handle_post(self, url: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        self.requests.append(url)
        self.headers.append(headers)
        if self.failures:
            return self.failures.pop(0)
        subject, *rest = map(unquote, url.split("/")[2:])
        if not rest:
            return self._look_up(subject, body)
        return 200, {"id": self.add(subject, body["schema"], body["schemaType"], body.get("references"))}

    def _look_up(self, subject: str, body: dict[str, Any]) -> tuple[int, Any]:
        if subject not in self._subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for number, id in enumerate(self._subjects[subject], 1):
            if self._documents[id - 1] == {"schema": body["schema"], "schemaType": body["schemaType"]}:
                return 200, {"subject": subject, "version": number, "id": id, **self._documents[id - 1]}
        return 404, {"error_code": 40403, "message": "Schema not found"}
