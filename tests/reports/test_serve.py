"""The watched page: news when there are some, nothing to others, nothing to change."""

import json
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from placed import command, place
from reliability import tried

from comad.cli import main
from comad.errors import UserError
from comad.reports.serve import serve
from comad.runs.seal import seal_run


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    place(tmp_path / "runs", "comad", 0, [1.0, 1.0])
    with serve([tmp_path / "runs"], 0, command, list) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_news_come_when_a_run_has_written_and_not_before(port: int, tmp_path: Path) -> None:
    answer, page = ask(port, "/")
    assert answer.status == 200 and b"connect-src 'self'" in page and b"data.json" in page
    first, body = ask(port, "/data.json")
    tag = first.headers["ETag"]
    assert len(json.loads(body)["results"]) == 1 and first.headers["Cache-Control"] == "no-store"
    assert ask(port, "/data.json", If_None_Match=tag)[0].status == 304

    unfinished = place(tmp_path / "runs", "owl", 0, [0.5, 0.5], greedily=0.25, actions="vectors")
    lines = (unfinished / "scores.jsonl").read_text().splitlines(keepends=True)
    (unfinished / "scores.jsonl").write_text("".join(lines[:2]))
    seal_run(unfinished)
    (unfinished / "logs.jsonl").write_text(json.dumps({"task": 0, "update": 10}) + "\n")
    second, body = ask(port, "/data.json", If_None_Match=tag)
    assert second.status == 200 and second.headers["ETag"] != tag
    assert json.loads(body)["going"] == [{"name": "lbf-expert/owl-seed0", "share": 0.5, "curve": [0.0, 0.25], "points": 4}]


ELSEWHERE = (
    "/../x",
    "/%2e%2e/x",
    "/..%2fx",
    "//etc/passwd",
    "/data.json/../../x",
    "/index.html?x",
    "/settings.json",
    "/./",
    "/\\..\\x",
    "/~",
    "/%00",
)


@pytest.mark.promise("server")
def test_others_and_other_wishes_are_refused(port: int, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for host in ("elsewhere.example", "127.0.0.1.elsewhere.example", "", "localhost@elsewhere.example", "[::1]", "0.0.0.0"):
        assert ask(port, "/", Host=host)[0].status == 403
        tried()
    for path in ELSEWHERE:
        assert ask(port, path)[0].status == 404
        tried()
    for method in ("POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"):
        assert ask(port, "/data.json", method)[0].status == 501
        tried()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.promise("server")
def test_nobody_else_reaches_the_server(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing, but tells by which address this machine would speak to others
        except OSError:
            pytest.skip("this machine has no other address")
        address = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no other address")
    with pytest.raises(OSError), socket.create_connection((address, port), timeout=5):
        pass


@pytest.mark.promise("server")
def test_every_answer_says_what_a_browser_may_do(port: int) -> None:
    for path, status in (("/", 200), ("/data.json", 200), ("/nowhere", 404)):
        answer, body = ask(port, path)
        rules = answer.headers["Content-Security-Policy"]
        assert (
            answer.status == status and rules.startswith("default-src 'none'; connect-src 'self'; ") and "frame-ancestors 'none'" in rules
        )
        assert answer.headers["X-Content-Type-Options"] == "nosniff" and "unsafe-inline" not in rules.partition("script-src")[2]
        if path == "/":
            assert rules.removesuffix("; frame-ancestors 'none'") in body.decode()
        tried()


def test_what_is_wrong_is_said_before_anybody_asks(
    port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=f"port {port} .* give another with --port"):
        serve([tmp_path / "runs"], port, command, list)
    monkeypatch.chdir(tmp_path)
    assert main(["watch", "nowhere"]) == 2 and "no folder nowhere" in capsys.readouterr().err
    assert main(["watch", "runs", "--port", "70000"]) == 2 and "70000" in capsys.readouterr().err
    assert main(["watch"]) == 2
