"""The page while runs go on: served to this machine alone, read-only, made anew whenever a run has written something."""

import hashlib
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from comad.errors import UserError
from comad.escaping import harmless
from comad.reports.bounded_server import AT_ONCE, DEADLINE, BoundedServer
from comad.reports.page import Command, build, collect, policy
from comad.reports.results import Departures, Flaw, read_runs, runs_in

HOST = "127.0.0.1"
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
            runs, gone = _listed(self.folders)
            seen = _fingerprint(runs), gone
            if seen != self._seen:
                results, flaws = read_runs(runs, self.departures)
                data = collect(results, [*flaws, *gone], self.command)
                self._page, self._data = build(data, watched=True).encode(), data.encode()
                self._seen = seen


def serve(
    folders: Sequence[Path],
    port: int,
    command: Command,
    departures: Departures,
    at_once: int = AT_ONCE,
    deadline: float = DEADLINE,
) -> BoundedServer:
    """A server that is ready to be let loose; port 0 takes a free one."""
    runs_in(folders)  # a folder that is not there is named before anybody asks
    watched = Watched(folders, command, departures)
    watched.data()

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "comad", ""
        timeout = deadline
        server: BoundedServer
        raw_requestline: bytes

        def parse_request(self) -> bool:
            """Whether a whole request line came; half of one is not guessed at."""
            return self.raw_requestline.endswith(b"\n") and super().parse_request()

        def do_GET(self) -> None:
            self.server.await_answer(self.connection)
            found = self.find()
            self.server.await_client(self.connection)
            self.answer(*found)

        def find(self) -> tuple[int, str, bytes, str | None]:
            """Status, kind, body and tag of the answer."""
            if self.headers.get("Host", "").rsplit(":", 1)[0] not in NAMES:
                return 403, "text/plain", b"this server answers its own machine only", None
            try:
                if self.path in ("/", "/index.html"):
                    return 200, "text/html; charset=utf-8", watched.page(), None
                if self.path == "/data.json":
                    data, tag = watched.data()
                    fresh = self.headers.get("If-None-Match") != tag
                    return (200, "application/json", data, tag) if fresh else (304, "application/json", b"", tag)
            except UserError as error:
                return 500, "text/plain; charset=utf-8", harmless(str(error)).encode(), None
            except Exception as error:  # the next request may do better, so the server stays
                return 500, "text/plain; charset=utf-8", harmless(f"the page could not be made ({error!r})").encode(), None
            return 404, "text/plain", b"there is nothing of that name", None

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
        return BoundedServer((HOST, port), Handler, at_once, deadline)
    except OSError as error:
        raise UserError(f"port {port} of this machine cannot be used ({error.strerror}); give another with --port") from error


def _listed(folders: Sequence[Path]) -> tuple[list[Path], list[Flaw]]:
    """All runs in the folders, and which folders are gone."""
    runs, gone = [], []
    for folder in folders:
        try:
            runs += runs_in([folder])
        except UserError as error:
            gone.append(Flaw(folder, str(error)))
    return list(dict.fromkeys(runs)), gone


def _fingerprint(runs: Sequence[Path]) -> list[tuple[str, int, int]]:
    """What changes whenever a run writes something that the page shows."""
    found = []
    for run in runs:
        try:
            for path in sorted((*run.glob("*.jsonl"), *run.glob("*.json"))):
                about = path.stat()
                found.append((str(path), about.st_size, about.st_mtime_ns))
        except OSError:
            found.append((str(run), -1, -1))  # replaced or removed in this very moment: the next look tells
    return found
