"""What a browser makes of a page: Chromium without a window, on machines that have one."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")

_MEASURING = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<iframe id="shown" style="border:0;width:{width}px;height:900px" src="{url}"></iframe>
<script>
document.getElementById("shown").addEventListener("load", ({{ target }}) => setTimeout(() => {{
  const measure = new Function("window", "document", `return ({what})`)
  const found = document.body.appendChild(document.createElement("pre"))
  found.id = "found"
  found.textContent = JSON.stringify(measure(target.contentWindow, target.contentDocument))
}}, 500))
</script>"""


def elements(url: str, *options: str) -> str:
    """The elements of a page once its scripts have run, as HTML."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="browser-") as profile:
        # Time goes on as soon as nothing is left to do: what the page waits for has happened, however fast it is.
        always = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--virtual-time-budget=20000"]
        command = [CHROMIUM, *always, f"--user-data-dir={profile}", *options, "--dump-dom", url]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def measured(page: Path, what: str, *, width: int = 1280, dark: bool = False) -> Any:
    """What a page that is a file looks like.

    Args:
        page: The file.
        what: An expression in JavaScript about ``document`` and ``window``, whose value JSON has a form for.
        width: The width of the page, in pixels.
        dark: Whether the reader prefers dark pages.
    """
    with tempfile.TemporaryDirectory(prefix="measured-") as folder:
        around = Path(folder) / "around.html"
        around.write_text(_MEASURING.format(width=width, url=page.as_uri(), what=what), encoding="utf-8")
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        text = elements(around.as_uri(), "--allow-file-access-from-files", f"--window-size={width},900", scheme)
    found = re.search(r'<pre id="found">(.*?)</pre>', text, re.DOTALL)
    assert found, text
    return json.loads(html.unescape(found[1]))
