"""The web server of `cspo watch`: this machine only, reading only.

A page that a stranger's site opens in the same browser must learn nothing from here: requests are
answered only if they name this machine as their host, so that a foreign name that was made to point
here (DNS rebinding) gets nothing, and no answer may be embedded or read elsewhere.
"""

from __future__ import annotations

import errno
import os
import re
import socketserver
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote

from cspo.errors import CspoError
from cspo.lab.watch.app import Answer, App
from cspo.lab.watch.video import Video

ADDRESS, USUAL_PORT = "127.0.0.1", 8420
HOSTS = {"127.0.0.1", "localhost", "[::1]"}  # whatever the port: a tunnel may lead here
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
CHUNK = 64 * 1024  # bytes of a film that are sent at once


class Handler(BaseHTTPRequestHandler):
    """Answers one connection: GET and HEAD, nothing else."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "cspo", ""
    timeout = 30.0  # seconds of silence after which a connection is closed

    def do_GET(self) -> None:
        """Send what is asked for."""
        name, _, port = self.headers.get("Host", "").rpartition(":")
        host = name if name and port.isdigit() else self.headers.get("Host", "")
        if host.lower() not in HOSTS:
            return self._refuse(HTTPStatus.FORBIDDEN, "This page is for this machine only.")
        path, _, query = self.path.partition("?")
        parts = [unquote(part) for part in path.split("/")[1:]]
        if not path.startswith("/") or len(parts) > 3:
            return self._refuse(HTTPStatus.NOT_FOUND, "There is no such page.")
        try:
            asked = dict(parse_qsl(query, max_num_fields=8))
        except ValueError:
            asked = {}
        answer = self.server.app.get(parts, asked)
        if answer is None:
            return self._refuse(HTTPStatus.NOT_FOUND, "There is no such page, or no longer.")
        if answer.film is not None:
            return self._send_film(answer.film)
        return self._send(HTTPStatus.OK, answer)

    do_HEAD = do_GET  # noqa: N815 (the name that the library looks for)

    def _send(
        self, status: HTTPStatus, answer: Answer, more: Mapping[str, str] | None = None
    ) -> None:
        self._head(status, answer.kind, len(answer.body), more or {})
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _head(self, status: HTTPStatus, kind: str, size: int, more: Mapping[str, str]) -> None:
        self.send_response(status)
        told = {"Content-Type": kind, "Content-Length": str(size), **HEADERS, **more}
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self.close_connection = True  # whatever else it sent is not read as a request
        plain = Answer("text/plain; charset=utf-8", f"{text}\n".encode())
        self._send(status, plain, {"Connection": "close", "Allow": "GET, HEAD"})

    def _send_film(self, film: Video) -> None:
        """Send a film, or the part of it that is asked for: players jump."""
        try:
            source = film.open()
        except OSError:  # removed, or replaced by a link
            return self._refuse(HTTPStatus.NOT_FOUND, "The film is gone.")
        with source:
            size = os.fstat(source.fileno()).st_size
            first, last = _range(self.headers.get("Range", ""), size)
            if first > last and size:
                whole = {"Content-Range": f"bytes */{size}"}
                status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
                return self._send(status, Answer("text/plain"), whole)
            more, status = {"Accept-Ranges": "bytes"}, HTTPStatus.OK
            if "Range" in self.headers:
                more["Content-Range"] = f"bytes {first}-{last}/{size}"
                status = HTTPStatus.PARTIAL_CONTENT
            self._head(status, film.kind, last - first + 1, more)
            left = 0 if self.command == "HEAD" else last - first + 1
            source.seek(first)
            while left and (chunk := source.read(min(CHUNK, left))):
                self.wfile.write(chunk)
                left -= len(chunk)
            self.close_connection |= left > 0  # the film became shorter meanwhile
        return None

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:
        """Answer a request that is none in plain text: a method other than GET and HEAD, say."""
        refused = HTTPStatus.METHOD_NOT_ALLOWED if code == 501 else HTTPStatus(code)
        self._refuse(refused, "This page can only be read.")

    def log_message(self, *message: Any) -> None:
        """Say nothing: a page that asks every other second would fill the terminal."""


def _range(asked: str, size: int) -> tuple[int, int]:
    """Return the first and the last byte of a range; all of them where it is none."""
    match = re.fullmatch(r"bytes=(\d{0,15})-(\d{0,15})", asked.strip())
    if not match or not any(match.groups()):
        return 0, size - 1
    first, last = match.groups()
    if not first:  # the last so many
        return max(0, size - int(last)), size - 1
    return int(first), min(int(last), size - 1) if last else size - 1


class Server(ThreadingHTTPServer):
    """Serves an `App` on this machine."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # elsewhere it would share a port that is in use

    def __init__(self, app: App, port: int | None = None) -> None:
        """Listen.

        Args:
            app: What answers.
            port: The port; 0 for any that is free, None for the usual one if it is free.

        Raises:
            CspoError: If the port is taken, or not for this user.
        """
        self.app = app
        try:
            super().__init__((ADDRESS, USUAL_PORT if port is None else port), Handler)
        except OSError as fault:
            if port is None and fault.errno == errno.EADDRINUSE:
                super().__init__((ADDRESS, 0), Handler)
                return
            taken = "it is taken" if fault.errno == errno.EADDRINUSE else fault.strerror
            advice = "Choose another, or leave --port out."
            raise CspoError(f"Cannot listen on port {port}: {taken}. {advice}") from fault

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a browser that left in the middle of an answer; show any other fault."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def server_bind(self) -> None:
        """Bind without asking a name server for the name of this machine, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]
