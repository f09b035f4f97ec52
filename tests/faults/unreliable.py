"""Unreliable proxies of a real server: a line that can be cut, frozen or slow, and a gateway with rules."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

import httpx

Mode = Literal["pass", "hang", "refuse", "slow"]
SLOW = 1.0


class Line:
    """A TCP proxy that passes, refuses, delays, or holds bytes until it passes again."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._passes = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._mode: Mode = "pass"
        self.mode = "pass"
        self.delay = SLOW

    @property
    def mode(self) -> Mode:
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        if self._mode == "refuse" != mode:
            self._listener = self._listen(self.port)
        self._mode = mode
        if mode == "refuse":
            self.close()
        if mode == "hang":
            self._passes.clear()
        else:
            self._passes.set()

    def close(self) -> None:
        for connection in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._sockets.clear()

    def _listen(self, port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(100)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._to)
                self._sockets |= {client, server}
                asked = threading.Event()
                for pump in ((client, server, asked, False), (server, client, asked, True)):
                    threading.Thread(target=self._pump, args=pump, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, asked: threading.Event, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._passes.wait()
                if not answers:
                    asked.set()
                elif self._mode == "slow" and asked.is_set():
                    asked.clear()
                    time.sleep(self.delay)
                target.sendall(data)
        for connection in (source, target):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
            self._sockets.discard(connection)


@contextlib.contextmanager
def line_to(address: tuple[str, int]) -> Iterator[Line]:
    line = Line(*address)
    try:
        yield line
    finally:
        line._passes.set()
        line.close()


class Gateway:
    """An HTTP proxy that requires headers, and fails the next requests on demand."""

    def __init__(self, host: str, port: int) -> None:
        self.wants: dict[str, str] = {}
        self.failures: list[int] = []
        self.requests: list[tuple[str, str, int]] = []
        self._client = httpx.Client(base_url=f"http://{host}:{port}", timeout=30)
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if any(self.headers.get(name) != value for name, value in gateway.wants.items()):
                    status, content = 401, b'{"error": "AuthError", "message": "Who are you?"}'
                elif gateway.failures:
                    status, content = gateway.failures.pop(0), b"not now"
                else:
                    headers = {"content-type": self.headers.get("content-type") or "application/json"}
                    answer = gateway._client.request(self.command, self.path, content=body, headers=headers)
                    status, content = answer.status_code, answer.content
                gateway.requests.append((self.command, self.path, status))
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = handle_any

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._client.close()


@contextlib.contextmanager
def gateway_to(address: tuple[str, int]) -> Iterator[Gateway]:
    gateway = Gateway(*address)
    try:
        yield gateway
    finally:
        gateway.close()
