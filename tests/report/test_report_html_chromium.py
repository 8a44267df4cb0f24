"""The page in a browser: no message, no request, nothing wider than a phone, another picture in the dark."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from test_report_html import FIGURES, HOSTILE, everywhere, verdicts

from pytest_stepprof.report.document import Details, Document, Lines, Paragraph, Table, Text
from pytest_stepprof.report.html import render_html

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
MEASURE = """<script>
const root = document.documentElement;
document.querySelectorAll("details").forEach((one) => { one.open = true; });
const wide = [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > innerWidth + 1
  && !one.closest(".scroll") && !one.closest(".strip"));
parent.postMessage(root.scrollWidth + " " + innerWidth + " " + wide.map((one) => one.outerHTML.slice(0, 80)), "*");
</script></body>"""
FRAME = """<!DOCTYPE html><title>nothing</title>
<script>addEventListener("message", (event) => { document.title = event.data; });</script>
<iframe src="inside.html" style="border: 0; width: WIDTHpx; height: 1500px"></iframe>"""


def page() -> str:
    long = "test_training.py::test_step[" + "x" * 300 + "]"
    wide = Table(headers=("c",) * 12, rows=((Text("aten::convolution_backward"),) * 12,), alignments=("left",) * 12)
    blocks = (
        Paragraph(Text("compared with " + "y" * 200)),
        verdicts(long, "test_training.py::test_other"),
        Lines(("time: " + "slower " * 40, "    " + "z" * 300)),
        wide,
        *(block for text in HOSTILE for block in everywhere(text)),
        Details(Text(long, literal=True), FIGURES, open=True),
    )
    return render_html(Document(title=Text("stepprof: " + "w" * 150), blocks=blocks))


def browse(tmp_path: Path, text: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    command = [
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}",
        *arguments,
        file.as_uri(),
    ]
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        command, env=environment, check=False, capture_output=True, text=True, errors="replace", timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def said(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """What the page said on the console: the browser's own messages are about the machine."""
    return [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


def asked(log: Path) -> list[str]:
    """What the page asked for beside itself: each such request names an origin, the browser's own have none."""
    events = [event.get("params", {}) for event in json.loads(log.read_bytes())["events"]]
    requests = [
        event for event in events if "url" in event and event.get("initiator", "not an origin") != "not an origin"
    ]
    return [request["url"] for request in requests if not request["url"].startswith("data:")]


def test_nothing_is_said_and_nobody_is_asked(tmp_path):
    log, shot = tmp_path / "net.json", tmp_path / "page.png"
    done = browse(tmp_path, page(), f"--log-net-log={log}", "--window-size=390,2000", f"--screenshot={shot}")
    assert said(done) == []
    assert asked(log) == []
    assert shot.stat().st_size > 20_000


def test_what_would_be_said_or_asked_is_heard(tmp_path):
    """Without this, the test above could not fail: the page's policy refuses a picture from elsewhere, and says so."""
    log, picture = tmp_path / "net.json", "http://127.0.0.1:9/x.png"
    spoiled = page().replace("<main>", f'<main><img src="{picture}">')
    arguments = (f"--log-net-log={log}", "--window-size=390,800", f"--screenshot={tmp_path / 'page.png'}")
    assert any("Content Security Policy" in line for line in said(browse(tmp_path, spoiled, *arguments)))
    assert asked(log) == []
    browse(tmp_path, POLICY.sub("", spoiled), *arguments)
    assert picture in asked(log)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_does_not_scroll_sideways(tmp_path, width):
    (tmp_path / "inside.html").write_text(POLICY.sub("", page()).replace("</body>", MEASURE), encoding="utf-8")
    done = browse(tmp_path, FRAME.replace("WIDTH", str(width)), "--window-size=1400,1600", "--dump-dom")
    found = re.search(r"<title>(\d+) (\d+) ?([^<]*)", done.stdout)
    assert found is not None, done.stdout[:300]
    assert (int(found[1]), int(found[2]), found[3]) == (width, width, "")


def test_light_and_dark_are_two_pictures(tmp_path):
    shots = [tmp_path / f"{name}.png" for name in ("light", "dark")]
    for shot, scheme in zip(shots, (1, 0), strict=True):
        browse(
            tmp_path,
            page(),
            f"--blink-settings=preferredColorScheme={scheme}",
            "--window-size=390,600",
            f"--screenshot={shot}",
        )
    light, dark = (shot.read_bytes() for shot in shots)
    assert light != dark
