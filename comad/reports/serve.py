"""The page while runs go on: served to this machine alone, read-only, made anew whenever a run has written something."""

import hashlib
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from comad.errors import UserError
from comad.reports.page import Command, build, collect, policy
from comad.reports.results import Departures, gather
from comad.runs.record import find_runs

HOST = "127.0.0.1"
PATIENCE = 30.0
"""Seconds in which somebody who has called must say what for."""
NAMES = ("127.0.0.1", "localhost")
"""What a browser may call this machine. A page from elsewhere that was made to point here calls it otherwise."""


class Watched:
    """What runs in some folders say now."""

    def __init__(self, folders: Sequence[Path], command: Command, departures: Departures) -> None:
        self.folders, self.command, self.departures = tuple(folders), command, departures
        self._lock = threading.Lock()
        self._seen: Any = None
        self._page = self._data = b""

    def page(self) -> bytes:
        """The page, with the newest data in it."""
        self._look()
        return self._page

    def data(self) -> tuple[bytes, str]:
        """The newest data as JSON, and a name that changes with it."""
        self._look()
        return self._data, f'"{hashlib.sha256(self._data).hexdigest()[:32]}"'

    def _look(self) -> None:
        with self._lock:
            seen = _fingerprint(self.folders)
            if seen != self._seen:
                data = collect(*gather(self.folders, self.departures), self.command)
                self._page, self._data = build(data, watched=True).encode(), data.encode()
                self._seen = seen


def serve(folders: Sequence[Path], port: int, command: Command, departures: Departures) -> ThreadingHTTPServer:
    """A server that is ready to be let loose; port 0 takes a free one."""
    watched = Watched(folders, command, departures)
    watched.data()  # what is wrong with the folders is said before anybody asks

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "comad", ""
        timeout = PATIENCE

        def do_GET(self) -> None:
            if self.headers.get("Host", "").rsplit(":", 1)[0] not in NAMES:
                return self.answer(403, "text/plain", b"this server answers its own machine only")
            try:
                if self.path in ("/", "/index.html"):
                    return self.answer(200, "text/html; charset=utf-8", watched.page())
                if self.path == "/data.json":
                    data, tag = watched.data()
                    if self.headers.get("If-None-Match") == tag:
                        return self.answer(304, "application/json", b"", tag)
                    return self.answer(200, "application/json", data, tag)
            except UserError as error:
                return self.answer(500, "text/plain; charset=utf-8", str(error).encode())
            return self.answer(404, "text/plain", b"there is nothing of that name")

        def answer(self, status: int, kind: str, body: bytes, tag: str | None = None) -> None:
            """Send it, never to be kept by anybody on the way."""
            self.send_response(status)
            headers = {
                "Content-Type": kind,
                "Content-Length": str(len(body)),
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Resource-Policy": "same-origin",
                "Content-Security-Policy": f"{policy(watched=True)}; frame-ancestors 'none'",
            }
            for name, value in {**headers, **({"ETag": tag} if tag else {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: Any) -> None:
            """Say nothing of each request."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise UserError(f"port {port} of this machine cannot be used ({error.strerror}); give another with --port") from error


def _fingerprint(folders: Sequence[Path]) -> list[tuple[str, int, int]]:
    """What changes whenever a run writes something that the page shows."""
    found = []
    for run in (run for folder in folders for run in find_runs(folder)):
        for path in sorted((*run.glob("*.jsonl"), *run.glob("*.json"))):
            try:
                about = path.stat()
            except FileNotFoundError:
                continue  # replaced in this very moment
            found.append((str(path), about.st_size, about.st_mtime_ns))
    return found
