"""The page in a real browser: it draws without errors, filters, sorts, replays, changes its theme, and asks nobody for anything."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from placed import command as told
from placed import place
from reliability import tried
from test_page import page_of

from comad.reports.results import gather
from comad.reports.serve import serve

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
SAFETY = 600.0
"""Seconds after which a browser that does nothing is given up."""
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium; on Debian 'apt install chromium' brings it")

SCRIPT = """
const seen = {}, text = (selector) => [...document.querySelectorAll(selector)].map((element) => element.textContent);
const methods = () => text("#main-table tbody tr").map((row) => row.match(/comad-quiet|comad|owl|ft/)[0]);
const pick = (id, value) => {
  const element = document.getElementById(id);
  element.value = value;
  element.dispatchEvent(new Event("change"));
};
seen.start = methods();
seen.glance = text("#glance-table tbody tr");
seen.glanceBest = text("#glance-table .best");
seen.curves = document.querySelectorAll("#curve-plots polyline").length;
seen.cells = document.querySelectorAll("#matrix-plots td").length;
document.querySelectorAll("#main-table th button")[3].click();
seen.byName = methods();
seen.sorted = document.querySelectorAll("#main-table th")[3].getAttribute("aria-sort");
document.querySelectorAll("#main-table th button")[3].click();
seen.byNameBack = methods();
seen.focused = document.activeElement.textContent;
document.querySelectorAll("#methods input")[1].click();
seen.without = methods();
pick("curve", "second");
seen.onSecond = document.querySelectorAll("#curve-plots polyline").length;
pick("quality", "expert");
seen.expert = methods();
const theme = document.documentElement.dataset.theme;
document.getElementById("theme").click();
seen.theme = [theme, document.documentElement.dataset.theme];
const area = document.querySelector("#curve-plots svg").getBoundingClientRect();
const where = { clientX: area.left + 0.97 * area.width, clientY: area.top + 20 };
document.querySelector("#curve-plots svg").dispatchEvent(new MouseEvent("mousemove", where));
seen.hover = document.querySelector(".hover:not([hidden])").textContent;
seen.overall = text("#overall-tables tbody tr").length;
seen.bars = document.querySelectorAll("#bars rect").length;
seen.dots = document.querySelectorAll("#skills circle").length;
pick("replay-task", "1");
const board = document.querySelector("#stage canvas");
const pixels = board.getContext("2d").getImageData(0, 0, board.width, board.height).data;
seen.told = [text("#replay-told")[0]];
seen.painted = new Set(pixels).size;
document.getElementById("replay-on").click();
document.getElementById("replay-on").click();
document.getElementById("replay-on").click();
seen.told.push(text("#replay-told")[0]);
document.getElementById("replay-back").click();
seen.told.push(text("#replay-told")[0]);
document.getElementById("replay-play").click();
seen.play = [text("#replay-play")[0]];
document.getElementById("replay-play").click();
seen.play.push(text("#replay-play")[0]);
seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
seen.overflow = document.documentElement.scrollWidth > innerWidth;
document.body.replaceChildren(Object.assign(document.createElement("pre"), { id: "seen", textContent: JSON.stringify(seen) }));
"""


def visit(page: str, folder: Path, width: int, script: str = SCRIPT) -> tuple[Any, str]:
    """What the script saw on the page, and what the browser complained about."""
    file = folder / "index.html"
    # The page runs no program but its own, so ours must be named beside it.
    ours = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = page.replace("script-src ", f"script-src 'sha256-{ours}' ", 1)
    file.write_text(page.replace("</body>", f"<script>{script}</script></body>"))
    profile = f"--user-data-dir={folder / 'profile'}"
    options = ("--headless", "--no-sandbox", "--disable-gpu", *QUIET, profile, "--enable-logging=stderr", f"--window-size={width},900")
    done = subprocess.run(
        [str(CHROMIUM), *options, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=SAFETY, check=True
    )
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stderr
    return json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")), done.stderr


def portrait() -> dict[str, Any]:
    """Two episodes of a board of two by two, and skills of two stages."""
    episode = {
        **{"world": "w", "head": 1, "success": True, "total": 1.0, "length": 2, "rows": 2, "columns": 2},
        "palette": [["disc", "#2a6fbb", "0", 0.7], ["diamond", "#d68910", "", 0.7]],
        "frames": [[[0, 0, column], [1, 1, 1]] for column in (0, 1, 1)],
        "rewards": [0.0, 0.5, 1.0],
        "familiarity": [[0.5, 2.0], [0.5, 2.0], [0.5, 2.0]],
    }
    stage = {"points": [[0.0, 1.0], [1.0, 0.0]], "task": [0, 0], "head": [0, 0], "time": [0.1, 0.9]}
    return {
        **{"version": 1, "position": 21},
        "replays": [{**episode, "task": task} for task in ("first", "second")],
        "skills": {"explained": [0.6, 0.3], "stages": [{**stage, "after": "first"}, {**stage, "after": "second", "task": [0, 1]}]},
        "reuse": [{"task": task, "weights": [[0.2, 0.8]] * 10} for task in ("first", "second")],
    }


@pytest.mark.parametrize("width", [1200, 420])
def test_the_page_works_in_a_browser(tmp_path: Path, width: int) -> None:
    path = place(tmp_path / "runs", "comad", 0, [1.0, 1.0], settings={"noise": 0.1})
    (path / "portrait.json").write_text(json.dumps(portrait()))
    place(tmp_path / "runs", "comad-quiet", 0, [0.2, 0.2], settings={"noise": 0.0})
    place(tmp_path / "runs", "owl", 0, [0.9, 1.0])
    place(tmp_path / "runs", "ft", 0, [0.0, 1.0])
    seen, complaints = visit(page_of(*gather([tmp_path / "runs"])), tmp_path, width)
    assert "CONSOLE" not in complaints
    assert seen["start"] == ["comad", "owl", "ft", "comad-quiet"] and seen["curves"] == 4 and seen["cells"] == 4 * 4
    # A variant is no rival, and of three methods the best comes first.
    assert [row.split("1 seed")[0] for row in seen["glance"]] == ["comad100.0", "owl95.0", "ft50.0"] and seen["glanceBest"] == ["100.0"]
    assert seen["byName"] == ["comad", "comad-quiet", "ft", "owl"] and seen["sorted"] == "ascending"
    assert seen["byNameBack"] == seen["byName"][::-1]
    assert seen["focused"].startswith("method")  # the keyboard stays where it was
    assert seen["without"] == ["owl", "comad-quiet", "comad"] == seen["expert"] and seen["onSecond"] == 3
    # A table of two methods (one is filtered out) and a square of chances; two bars; the two skills of the last stage.
    assert seen["overall"] == 4 and seen["bars"] == 2 and seen["dots"] == 2
    said = [
        f"second, moment {moment} of 2, head 1, return {reward}, familiar to heads 0.5 | 2.0"
        for moment, reward in ((0, "0.00"), (2, "1.00"), (1, "0.50"))
    ]
    assert seen["told"] == [said[0], f"{said[1]}, success", said[2]]
    assert seen["play"] == ["Pause", "Play"] and seen["painted"] > 8
    assert sorted(seen["theme"]) == ["dark", "light"]
    assert seen["hover"].startswith("second, evaluation 1\n") and "owl" in seen["hover"]
    assert seen["requests"] == [] and not seen["overflow"]


EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"\'`${window.hacked=1}'
LOOK = """
document.querySelectorAll("select").forEach((element) => {
  element.selectedIndex = element.options.length - 1;
  element.dispatchEvent(new Event("change"));
});
document.querySelectorAll("button").forEach((element) => element.click());
addEventListener("load", () => {  // an image that fails has failed before that
  const seen = { hacked: window.hacked ?? 0, scripts: document.scripts.length, images: document.images.length };
  seen.text = document.body.textContent.split("window.hacked=1").length - 1;
  seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
  document.body.replaceChildren(Object.assign(document.createElement("pre"), { id: "seen", textContent: JSON.stringify(seen) }));
});
"""


def spoiled(value: Any) -> Any:
    """The same with every text made evil, but for those that are looked up."""
    if isinstance(value, dict):
        return {name: spoiled(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [spoiled(inner) for inner in value]
    return f"{value}{EVIL}" if isinstance(value, str) else value


@pytest.mark.promise("page")
def test_no_name_does_anything_on_the_page(tmp_path: Path) -> None:
    names: dict[str, Any] = {
        "stream": f"s{EVIL}",
        "quality": f"q{EVIL}",
        "method": f"m{EVIL}",
        "tasks": [{"name": f"t{EVIL}"}, {"name": f"u{EVIL}"}],
    }
    other: dict[str, Any] = {"settings": {f"a{EVIL}": f"b{EVIL}"}, f"c{EVIL}": [f"d{EVIL}"]}
    folder = EVIL.replace("/", "")
    path = place(tmp_path / "runs", f"comad-{folder}", 0, [1.0, 1.0], **names, **other)
    place(tmp_path / "runs", f"owl-{folder}", 0, [0.5, 1.0], **names, **{**other, "settings": {f"a{EVIL}": f"e{EVIL}"}})
    heads = {"task": 0, "name": EVIL, "active": 0, "before": 0, "used": 1, "scores": [0.0], "own_score": [2.0], "noise_score": [-3.0]}
    (path / "heads.jsonl").write_text("".join(json.dumps({**heads, "when": when}) + "\n" for when in ("begin", "finish")))
    (path / "portrait.json").write_text(json.dumps(spoiled(portrait())))
    going = place(tmp_path / "runs", f"going-{folder}", 0, [1.0, 1.0], **names)
    (going / "scores.jsonl").write_text("")
    broken = place(tmp_path / "runs", f"broken-{folder}", 0, [1.0, 1.0])
    (broken / "scores.jsonl").write_text(f"{EVIL}\n")
    results, flaws = gather([tmp_path / "runs"])
    assert len(results) == 2 and len(flaws) == 2
    page = page_of(results, flaws)
    seen, complaints = visit(page, tmp_path, 1200, LOOK)
    assert seen["hacked"] == 0 and seen["images"] == 0 and seen["requests"] == []
    assert seen["scripts"] == 3, "the data, the page's own program and the test's"
    assert seen["text"] > 50, "names are shown as they are"
    assert "CONSOLE" not in complaints
    tried(seen["text"])


@pytest.mark.promise("page")
def test_even_a_script_in_the_page_would_not_run(tmp_path: Path) -> None:
    place(tmp_path / "runs", "comad", 0, [1.0, 1.0])
    page = page_of(*gather([tmp_path / "runs"])).replace("<header>", f"{EVIL}<script>window.hacked=1</script><header>")
    seen, complaints = visit(page, tmp_path, 1200, LOOK)
    assert seen["hacked"] == 0 and complaints.count("The action has been blocked") >= 3


@pytest.mark.slow
def test_a_watched_page_takes_in_news_by_itself(tmp_path: Path) -> None:
    place(tmp_path / "runs", "comad", 0, [1.0, 1.0])
    going = place(tmp_path / "runs", "owl", 0, [1.0, 1.0])
    lines = (going / "scores.jsonl").read_text().splitlines(keepends=True)
    (going / "scores.jsonl").write_text("".join(lines[:2]))
    asked, written = threading.Event(), threading.Event()
    with serve([tmp_path / "runs"], 0, told, lambda identity: ()) as server:

        class Waiting(server.RequestHandlerClass):  # type: ignore[name-defined, misc]
            """Answers a page that asks for news when there are some."""

            def do_GET(self) -> None:  # noqa: N802
                if self.path == "/data.json":
                    asked.set()
                    written.wait(SAFETY)
                super().do_GET()

        server.RequestHandlerClass = Waiting
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        # Two minutes of the page's own time pass at once, but only while nothing is loading.
        options = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            *QUIET,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr",
        )
        where = f"http://127.0.0.1:{server.server_address[1]}/"
        command = [str(CHROMIUM), *options, "--virtual-time-budget=120000", "--dump-dom", where]
        browser = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert asked.wait(SAFETY), "the page never asked for news"
        (going / "logs.jsonl").write_text(json.dumps({"task": 0, "update": 10}) + "\n")
        written.set()
        page, complaints = browser.communicate(timeout=SAFETY)
        server.shutdown()
        thread.join()
    assert "CONSOLE" not in complaints, complaints
    assert "1 finished runs of 1 methods on 1 streams, 1 not finished." in page
    shares = re.search(r"owl-seed0.*?<td[^>]*>(\d+) %</td>", page, re.S)
    assert shares and int(shares[1]) == 50
