"""An in-memory S3 server without authentication, for behaviour that SeaweedFS does not have.

It runs in this process, and delta-rs holds the interpreter lock while it lists files: list only on another server.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

HOST = "127.0.0.1"

EMPTY_LISTING = b'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>'


@dataclass
class FakeS3:
    """The objects of a fake S3 server, and its behaviour."""

    endpoint: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    ignores_conditions: bool = False
    """Whether a PUT with If-None-Match overwrites an existing object."""
    error: tuple[int, str] | None = None
    """Status and XML of the response to every request to a bucket, or None for normal responses."""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and Authorization header of each request."""
    web_identity_tokens: list[str] = field(default_factory=list)
    """Tokens that clients have exchanged for credentials."""

    @property
    def options(self) -> dict[str, str]:
        return {
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "aws_endpoint_url": self.endpoint,
            "aws_allow_http": "true",
            "max_retries": "0",
        }


def xml_error(code: str, message: str = "", more: str = "") -> str:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>'


@contextmanager
def run_fake_s3() -> Iterator[FakeS3]:
    store = FakeS3()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def handle_request(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            key = unquote(parts.path).lstrip("/")
            store.requests.append((self.command, key, self.headers.get("Authorization") or ""))
            if self.command == "POST" and not key:
                self.assume_role(parse_qs(body.decode()))
            elif self.command == "POST" and parts.query.startswith("delete"):
                for deleted in re.findall(r"<Key>(.*?)</Key>", body.decode()):
                    store.objects.pop(f"{key}/{deleted}", None)
                self.respond(200, b'<?xml version="1.0"?><DeleteResult></DeleteResult>')
            elif store.error is not None:
                self.respond(store.error[0], store.error[1].encode())
            elif self.command == "PUT":
                self.put(key, body)
            elif "list-type" in parts.query:
                self.respond(200, EMPTY_LISTING)
            elif self.command == "DELETE":
                store.objects.pop(key, None)
                self.respond(204)
            elif key in store.objects:
                self.respond(200, store.objects[key])
            else:
                self.respond(404, xml_error("NoSuchKey").encode())

        do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = handle_request  # noqa: N815

        def put(self, key: str, body: bytes) -> None:
            is_conditional = self.headers.get("If-None-Match") == "*"
            if is_conditional and key in store.objects and not store.ignores_conditions:
                self.respond(412, xml_error("PreconditionFailed").encode())
            else:
                store.objects[key] = body
                self.respond(200)

        def assume_role(self, form: dict[str, list[str]]) -> None:
            """Answer AssumeRoleWithWebIdentity, as AWS's Security Token Service does."""
            store.web_identity_tokens.append(form["WebIdentityToken"][0])
            self.respond(
                200,
                b"<AssumeRoleWithWebIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'>"
                b"<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>from-token</AccessKeyId>"
                b"<SecretAccessKey>secret</SecretAccessKey><SessionToken>session</SessionToken>"
                b"<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
                b"<AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/writer/session</Arn><AssumedRoleId>id</AssumedRoleId></AssumedRoleUser>"
                b"</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
            )

        def respond(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"tag"')
            self.send_header("Last-Modified", "Wed, 01 May 2024 12:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    store.endpoint = f"http://{HOST}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
