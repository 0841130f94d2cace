"""An HTTP server that slow clients cannot hold up: few at once, and a deadline for each."""

import contextlib
import math
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

AT_ONCE = 32
"""Connections that are served at once, each by a thread of its own."""
DEADLINE = 10.0
"""Seconds in which a client must have asked, and as many in which it must have taken the answer."""
LOOK_AGAIN = 0.05
"""Seconds until another client must give way, if the first has not left its place by then."""


class BoundedServer(ThreadingHTTPServer):
    """Serves a bounded number of clients at once, each of which has a deadline.

    Where all places are taken, the client that has held its place longest gives way to the new one.
    A client whose answer is still being made has no deadline and keeps its place: that it takes
    long is not its fault.
    """

    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        at_once: int = AT_ONCE,
        deadline: float = DEADLINE,
    ) -> None:
        self.deadline = deadline
        self._places = threading.BoundedSemaphore(at_once)
        self._guard = threading.Lock()
        self._due: dict[Any, float] = {}
        super().__init__(address, handler)

    def await_client(self, client: socket.socket) -> None:
        """Gives a client its deadline, to ask or to take the answer."""
        with self._guard:
            self._due[client] = time.monotonic() + self.deadline

    def await_answer(self, client: socket.socket) -> None:
        """Takes the deadline from a client that has asked."""
        with self._guard:
            self._due[client] = math.inf

    def service_actions(self) -> None:
        """Hangs up on clients whose time is over; the server calls this again and again."""
        with self._guard:
            for client in [client for client, due in self._due.items() if due <= time.monotonic()]:
                self._hang_up(client)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a client in a thread of its own as soon as it has a place."""
        while not self._places.acquire(blocking=False):
            self._give_way()
            if self._places.acquire(timeout=LOOK_AGAIN):
                break
        self.await_client(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a client to its end, then gives its place back."""
        try:
            # A client that is gone, or was hung up on, makes its socket fail.
            with contextlib.suppress(OSError):
                self.finish_request(request, client_address)
        finally:
            self._leave(request)

    def _leave(self, client: socket.socket) -> None:
        with self._guard:  # nobody hangs up on a socket that is being closed
            self._due.pop(client, None)
            self.shutdown_request(client)
        self._places.release()

    def _give_way(self) -> None:
        with self._guard:
            client = min(self._due, key=lambda one: self._due[one], default=None)
            if client is not None and self._due[client] < math.inf:
                self._hang_up(client)

    def _hang_up(self, client: socket.socket) -> None:
        """Ends a connection, which wakes the thread that waits for it."""
        self._due[client] = math.inf
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
