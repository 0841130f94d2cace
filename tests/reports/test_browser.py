"""The page in a real browser: it draws without errors, filters, sorts, and changes its theme, and asks nobody for anything."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_tables import place

from comad.reports.page import build
from comad.reports.results import gather

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium; on Debian 'apt install chromium' brings it")

SCRIPT = """
const seen = {}, text = (selector) => [...document.querySelectorAll(selector)].map((element) => element.textContent);
const methods = () => text("#main-table tbody tr").map((row) => row.match(/comad|owl|ft/)[0]);
const pick = (id, value) => {
  const element = document.getElementById(id);
  element.value = value;
  element.dispatchEvent(new Event("change"));
};
seen.start = methods();
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
seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
seen.overflow = document.documentElement.scrollWidth > innerWidth;
document.body.replaceChildren(Object.assign(document.createElement("pre"), { id: "seen", textContent: JSON.stringify(seen) }));
"""


def visit(page: str, folder: Path, width: int) -> tuple[Any, str]:
    """What the script saw on the page, and what the browser complained about."""
    file = folder / "index.html"
    file.write_text(page.replace("</body>", f"<script>{SCRIPT}</script></body>"))
    profile = f"--user-data-dir={folder / 'profile'}"
    options = ("--headless", "--no-sandbox", "--disable-gpu", *QUIET, profile, "--enable-logging=stderr", f"--window-size={width},900")
    done = subprocess.run([str(CHROMIUM), *options, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stderr
    return json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")), done.stderr


@pytest.mark.parametrize("width", [1200, 420])
def test_the_page_works_in_a_browser(tmp_path: Path, width: int) -> None:
    place(tmp_path / "runs", "comad", 0, [1.0, 1.0])
    place(tmp_path / "runs", "owl", 0, [0.9, 1.0])
    place(tmp_path / "runs", "ft", 0, [0.0, 1.0])
    seen, complaints = visit(build(*gather([tmp_path / "runs"])), tmp_path, width)
    assert "CONSOLE" not in complaints
    assert seen["start"] == ["comad", "owl", "ft"] and seen["curves"] == 3 and seen["cells"] == 3 * 4
    assert seen["byName"] == ["comad", "ft", "owl"] and seen["sorted"] == "ascending" and seen["byNameBack"] == ["owl", "ft", "comad"]
    assert seen["focused"].startswith("method")  # the keyboard stays where it was
    assert seen["without"] == ["owl", "comad"] and seen["onSecond"] == 2 and seen["expert"] == ["owl", "comad"]
    assert sorted(seen["theme"]) == ["dark", "light"]
    assert seen["hover"].startswith("second, evaluation 1\n") and "owl" in seen["hover"]
    assert seen["requests"] == [] and not seen["overflow"]
