"""The publishing side of a gateway: the standard library, a dictionary, and any answer a test wants instead."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.tokens import API_KEY

Canned = tuple[int, dict[str, str], bytes]


class StubGateway:
    """`with StubGateway() as stub`: listens on `stub.url`. `canned` answers are given first, in order, then true ones.

    `hangs`: requests get no answer while set. `drops`: so many requests are carried out, and the connection is closed
    instead of an answer. `requests` holds what came: method, path, headers in lower case, parsed body.
    """

    def __init__(self, base_path: str = "") -> None:
        self.base_path = base_path
        self.canned: deque[Canned] = deque()
        self.hangs = False
        self.drops = 0
        self.connections = 0
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.stored: dict[str, list[dict[str, Any]]] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.lock = threading.Lock()
        self.released = threading.Event()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 20
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                with stub.lock:
                    stub.connections += 1

            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                self.answer(json.loads(body))

            def do_GET(self) -> None:
                self.answer(None)

            def answer(self, body: Any) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                with stub.lock:
                    stub.requests.append((self.command, self.path, headers, body))
                    canned = stub.canned.popleft() if stub.canned else None
                    dropped = stub.drops > 0
                    stub.drops -= dropped
                if stub.hangs:
                    stub.released.wait(20)
                status, more, content = canned or stub.carry_out(self.command, self.path, headers, body)
                if dropped:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                with contextlib.suppress(OSError):  # whoever asked has given up
                    self.end_headers()
                    self.wfile.write(content)

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base_path}"

    def carry_out(self, method: str, path: str, headers: dict[str, str], body: Any) -> Canned:
        parts = urlsplit(path)
        if headers.get("authorization") != f"Bearer {API_KEY}":
            return problem(401, "unauthorized", "An API key is needed.")
        if (method, parts.path) == ("GET", f"{self.base_path}/v1/position"):
            (user,) = parse_qs(parts.query)["user"]
            return as_json(200, {"position": self.top(user)})
        if (method, parts.path) != ("POST", f"{self.base_path}/v1/publish"):
            return problem(404, "not_found", "There is nothing at this address.")
        with self.lock:
            if "messages" not in body:
                result = self.store(body)
                if "error" in result:
                    return problem(400, "invalid", result["error"]["detail"])
                return as_json(200, {name: value for name, value in result.items() if name != "user"})
            results = [self.store(message) for message in body["messages"]]
        return as_json(207 if any("error" in result for result in results) else 200, {"results": results})

    def store(self, message: dict[str, Any]) -> dict[str, Any]:
        user = message["user"]
        if message["event"] == "refused":
            return {"error": {"code": "invalid", "status": 400, "detail": "no such event", "retryable": False}}
        if message.get("ephemeral"):
            return {"user": user, "id": None, "duplicate": False, "listening": 2}
        key = (user, message["idempotency_key"])
        duplicate = key in self.keys
        if not duplicate:
            self.stored.setdefault(user, []).append(message)
            self.keys[key] = self.top(user)
        return {"user": user, "id": self.keys[key], "duplicate": duplicate, "listening": 1}

    def top(self, user: str) -> str:
        count = len(self.stored.get(user, ()))
        return f"EpochOne.{count}-{count and 7000 + count}"

    def __enter__(self) -> StubGateway:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that is cut is what these tests are about
            super().handle_error(request, client_address)


def as_json(status: int, content: Any, **headers: str) -> Canned:
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"content-type": "application/json", **more}, json.dumps(content).encode()


def problem(status: int, code: str, detail: str, *, headers: dict[str, str] | None = None, **members: Any) -> Canned:
    content = {"type": "about:blank", "title": "x", "status": status, "code": code, "detail": detail, **members}
    return status, {"content-type": "application/problem+json", **(headers or {})}, json.dumps(content).encode()
