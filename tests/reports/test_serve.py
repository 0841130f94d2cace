"""The watched page: news when there are some, nothing to others, nothing to change."""

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from placed import place

from comad.cli import main
from comad.errors import UserError
from comad.reports.serve import serve


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    place(tmp_path / "runs", "comad", 0, [1.0, 1.0])
    with serve([tmp_path / "runs"], 0, str) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
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

    unfinished = place(tmp_path / "runs", "owl", 0, [0.5, 0.5])
    lines = (unfinished / "scores.jsonl").read_text().splitlines(keepends=True)
    (unfinished / "scores.jsonl").write_text("".join(lines[:2]))
    (unfinished / "logs.jsonl").write_text(json.dumps({"task": 0, "update": 10}) + "\n")
    second, body = ask(port, "/data.json", If_None_Match=tag)
    assert second.status == 200 and second.headers["ETag"] != tag
    assert json.loads(body)["going"] == [{"name": "lbf-expert/owl-seed0", "share": 0.5, "curve": [0.0, 1.0], "points": 4}]


def test_others_and_other_wishes_are_refused(port: int) -> None:
    assert ask(port, "/", Host="elsewhere.example")[0].status == 403
    assert ask(port, f"/../{Path(__file__).name}")[0].status == 404
    for method in ("POST", "PUT", "DELETE"):
        assert ask(port, "/data.json", method)[0].status == 501


def test_what_is_wrong_is_said_before_anybody_asks(
    port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=f"port {port} .* give another with --port"):
        serve([tmp_path / "runs"], port, str)
    monkeypatch.chdir(tmp_path)
    assert main(["watch", "nowhere"]) == 2 and "no folder nowhere" in capsys.readouterr().err
    assert main(["watch", "runs", "--port", "70000"]) == 2 and "70000" in capsys.readouterr().err
    assert main(["watch"]) == 2
