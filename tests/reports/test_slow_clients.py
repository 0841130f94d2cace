"""Clients that are slow, and runs that vanish: the server answers everybody else all the same."""

import itertools
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from placed import command, place
from reliability import tried

from comad.reports import page, results, serve
from comad.reports.bounded_server import BoundedServer
from comad.runs import record

AT_ONCE, DEADLINE, LONG = 4, 0.5, 30.0
pytestmark = pytest.mark.promise("server")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., BoundedServer]]:
    """Serves the runs in a folder until the test ends."""
    place(tmp_path / "runs", "comad", 0, [1.0, 1.0])
    with ExitStack() as stack:

        def start_(deadline: float = DEADLINE, *folders: Path) -> BoundedServer:
            server = serve.serve(folders or [tmp_path / "runs"], 0, command, lambda identity: (), AT_ONCE, deadline)
            stack.enter_context(server)
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return server

        yield start_


def connect(server: BoundedServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=LONG)


def ask(server: BoundedServer, path: str = "/data.json") -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=LONG)
    connection.request("GET", path)
    answer = connection.getresponse()
    with answer:
        return answer.status, answer.read()


def wait_for_the_end(client: socket.socket) -> None:
    """Reads until the server has hung up; a server that does not makes this fail by its timeout."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionError:
        pass


def drip(client: socket.socket, first: bytes, more: bytes, stop: threading.Event) -> None:
    """Sends a little now and then until the server has had enough."""
    try:
        client.sendall(first)
        while not stop.wait(DEADLINE / 20):
            client.sendall(more)
    except OSError:
        return


BEGINNINGS = {
    "nothing at all": (b"", b""),
    "a request line without an end": (b"GET /", b"x"),
    "headers without an end": (b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n", b"a: b\r\n"),
}


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_a_client_that_drips_is_hung_up_on_at_its_deadline(kind: str, start: Callable[..., BoundedServer]) -> None:
    server, stop = start(), threading.Event()
    with connect(server) as client:
        dripping = threading.Thread(target=drip, args=(client, *BEGINNINGS[kind], stop))
        dripping.start()
        wait_for_the_end(client)  # the client never stops by itself, so the deadline ended it
        assert not stop.is_set()
        stop.set()
        dripping.join()
    assert ask(server)[0] == 200


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_a_client_that_drips_is_served_until_its_deadline(kind: str, start: Callable[..., BoundedServer]) -> None:
    server, stop = start(LONG * 10), threading.Event()
    with connect(server) as client:
        dripping = threading.Thread(target=drip, args=(client, *BEGINNINGS[kind], stop))
        dripping.start()
        assert ask(server)[0] == 200  # which came later, so the slow client had its turn
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        stop.set()
        dripping.join()


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_slow_clients_do_not_keep_others_out(kind: str, start: Callable[..., BoundedServer]) -> None:
    # No deadline ends these within the test: the newest client gets a place because the oldest gives way.
    server = start(LONG * 10)
    with ExitStack() as stack:
        for _ in range(5 * AT_ONCE):
            client = stack.enter_context(connect(server))
            client.sendall(BEGINNINGS[kind][0])
            tried()
        for _ in range(3):
            assert ask(server)[0] == 200
        serving = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
        assert len(serving) <= AT_ONCE


def test_a_client_that_does_not_take_its_answer_is_hung_up_on(start: Callable[..., BoundedServer], monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"x" * (64 << 20)  # more than all buffers on the way hold
    monkeypatch.setattr(serve.Watched, "page", lambda watched: body)
    server = start()
    left = threading.Event()
    leave = server._leave

    def tell(client: socket.socket) -> None:
        leave(client)
        left.set()

    monkeypatch.setattr(server, "_leave", tell)
    with connect(server) as client:
        client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert left.wait(LONG), "the thread still waits for its client"
        taken = 0
        try:
            while got := client.recv(1 << 20):
                taken += len(got)
        except ConnectionError:
            pass
        assert 0 < taken < len(body)
    assert ask(server)[0] == 200


def test_an_answer_that_takes_long_to_make_is_still_given(start: Callable[..., BoundedServer], monkeypatch: pytest.MonkeyPatch) -> None:
    server, go, looked = start(), threading.Event(), serve.Watched.data
    monkeypatch.setattr(serve.Watched, "data", lambda watched: go.wait(LONG) and looked(watched))
    with connect(server) as patient:
        patient.sendall(b"GET /data.json HTTP/1.0\r\nHost: localhost\r\n\r\n")
        with connect(server) as slow:
            wait_for_the_end(slow)  # which came later, so the deadline of both is over
        go.set()
        assert b" 200 " in patient.recv(1 << 16)


def test_a_thread_that_cannot_start_gives_its_place_back(monkeypatch: pytest.MonkeyPatch, start: Callable[..., BoundedServer]) -> None:
    server = start()
    monkeypatch.setattr(server, "handle_error", lambda *about: None)
    with monkeypatch.context() as failing:
        failing.setattr(ThreadingHTTPServer, "process_request", lambda *about: 1 // 0)
        for _ in range(2 * AT_ONCE):
            with connect(server) as client:
                wait_for_the_end(client)
    assert ask(server)[0] == 200


STEPS = {
    "before it is read": (results, "read_run"),
    "before its portrait is read": (results, "read_portrait"),
    "before its page is made": (page, "read_portrait"),
    "before it is looked at": (record, "_may_be_run"),
}


@pytest.mark.parametrize("step", STEPS)
def test_the_page_is_made_without_a_run_that_vanishes(
    step: str, start: Callable[..., BoundedServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start()
    place(tmp_path / "runs", "owl", 0, [1.0, 1.0])
    place(tmp_path / "runs" / "x", "ft", 0, [1.0, 1.0])
    module, name = STEPS[step]
    read = getattr(module, name)

    def remove(path: Path) -> Any:
        if "owl" in path.name:
            shutil.rmtree(path, ignore_errors=True)
            shutil.rmtree(tmp_path / "runs" / "x", ignore_errors=True)
        return read(path)

    monkeypatch.setattr(module, name, remove)
    status, body = ask(server)
    assert status == 200 and b'"label":"comad"' in body and b'"flaws":[]' in body
    assert ask(server, "/")[0] == 200


def test_runs_that_come_and_go_never_spoil_an_answer(start: Callable[..., BoundedServer], tmp_path: Path) -> None:
    server, done = start(LONG), threading.Event()

    def come_and_go() -> None:
        for number in itertools.count():
            if done.is_set():
                return
            place(tmp_path / "runs" / f"{number % 3}", "owl", number, [1.0, 1.0])
            shutil.rmtree(tmp_path / "runs" / f"{number % 3}")

    coming = threading.Thread(target=come_and_go)
    coming.start()
    try:
        for _ in range(60):
            status, body = ask(server)
            assert status == 200 and b'"label":"comad"' in body, body
            tried()
    finally:
        done.set()
        coming.join()


def test_a_folder_that_vanishes_is_named_and_the_others_are_shown(start: Callable[..., BoundedServer], tmp_path: Path) -> None:
    place(tmp_path / "more", "owl", 0, [1.0, 1.0])
    server = start(DEADLINE, tmp_path / "runs", tmp_path / "more")
    shutil.rmtree(tmp_path / "more")
    status, body = ask(server)
    assert status == 200 and b"there is no folder" in body and b'"label":"comad"' in body and b'"label":"owl"' not in body


def test_what_nobody_thought_of_is_an_answer_too(start: Callable[..., BoundedServer], monkeypatch: pytest.MonkeyPatch) -> None:
    server = start()

    def fail(watched: Any) -> bytes:
        raise RuntimeError("\x1b]0;broken")

    monkeypatch.setattr(serve.Watched, "page", fail)
    status, body = ask(server, "/")
    assert status == 500 and body.startswith(b"the page could not be made (RuntimeError(") and b"\x1b" not in body
