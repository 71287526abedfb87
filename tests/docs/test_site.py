"""The documentation site: it builds without a warning, every link in it leads somewhere, and it needs no network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import pyspark_statestore
from tests.browser import elements, measured, needs_browser
from tests.conftest import ROOT
from website.hooks import FORMER_PAGES

LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
"""Elements that a browser loads something for, whoever clicks on what."""
NO_LOAD = {"canonical", "next", "prev", "alternate"}
"""What a <link> may be without making a browser load anything."""
IN_A_FRAME = "assets/iframe-worker.js"
"""What lets a page that is a file search."""
LEFT_OF_MARKDOWN = re.compile(r"^(\* |\d+\. |\||#+ |:::)|```|\]\(|\\\|", re.MULTILINE)


class Html(HTMLParser):
    """What a page loads, links to, and has anchors for; and its text in paragraphs that is no code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.paragraphs: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag in LOADS and values.get("src"):
            self.loads.append(values["src"])
        elif tag == "link" and not set(values.get("rel", "").split()) <= NO_LOAD:
            self.loads.append(values["href"])
        elif tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "p":
            self.paragraphs.append("")
        if tag in ("p", "code"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "p":
            self.paragraphs[-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does, which fails at the first warning."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@cache
def read(page: Path) -> Html:
    """A page of the site."""
    return Html(page.read_text(encoding="utf-8"))


def pages(site: Path) -> list[Path]:
    """All pages of the site that can be reached by a link."""
    others = {"404.html", *(str(Path(page).with_suffix(".html")) for page in FORMER_PAGES)}
    return [page for page in sorted(site.rglob("*.html")) if str(page.relative_to(site)) not in others]


def broken(site: Path, page: Path, reference: str) -> bool:
    """Whether something in the site that a page names is not there."""
    url = urlsplit(reference)
    target = (page.parent / unquote(url.path)).resolve() if url.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site) or not target.is_file():
        return True
    # "#__search" and the like are for switches of the page itself, which has them as ids, too.
    return bool(url.fragment) and target.suffix == ".html" and unquote(url.fragment) not in read(target).anchors


def is_elsewhere(reference: str) -> bool:
    """Whether a reference leads out of the site."""
    return bool(urlsplit(reference).scheme or urlsplit(reference).netloc)


def test_every_link_leads_somewhere(site: Path) -> None:
    found = pages(site)
    assert len(found) > 50
    wrong = [
        f"{page.relative_to(site)}: {reference}"
        for page in found
        for reference in {*read(page).links, *read(page).loads}
        if not is_elsewhere(reference) and broken(site, page, reference)
    ]
    assert wrong == []


def test_a_page_that_is_gone_leads_to_one_that_is_there(site: Path) -> None:
    for former in FORMER_PAGES:
        assert not (ROOT / "docs" / former).exists(), "it has come back"
        page = (site / former).with_suffix(".html")
        (target,) = read(page).links
        assert not is_elsewhere(target)
        assert not broken(site, page, target), former
        assert (page.parent / urlsplit(target).path).resolve() in pages(site), "it leads to another one that is gone"
        assert f'<meta http-equiv="refresh" content="0; url={target}">' in page.read_text(encoding="utf-8")


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = {(page.name, each) for page in site.rglob("*.html") for each in read(page).loads if is_elsewhere(each)}
    assert {each for each in loaded if not each[1].startswith("data:")} == set()
    assert any(read(page).loads for page in pages(site))

    styles = "".join(style.read_text(encoding="utf-8") for style in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]*)", styles) == []


def test_no_page_makes_its_script_load_anything_from_elsewhere(site: Path) -> None:
    """Material's script fetches Mermaid for diagrams, and figures of a repository for its link, from elsewhere."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'class="mermaid"' not in text, page
        assert 'data-md-component="source"' not in text, page
        assert 'class="md-consent' not in text, page


def test_nothing_of_the_markdown_is_left(site: Path) -> None:
    """What reads well as a plain file may be no Markdown for the site: a list without an empty line before it."""
    left = [
        f"{page.relative_to(site)}: {paragraph[:100]}"
        for page in pages(site)
        for paragraph in read(page).paragraphs
        if LEFT_OF_MARKDOWN.search(paragraph)
    ]
    assert left == []


def documented(site: Path) -> Iterator[str]:
    """The names that the reference explains."""
    for page in (site / "reference").glob("*.html"):
        yield from (each for each in read(page).anchors if each.startswith("pyspark_statestore."))


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    names = set(documented(site))
    explained_in_words = {"OPTIONS", "SINK_OPTIONS", "__version__"}
    assert {f"pyspark_statestore.{name}" for name in set(pyspark_statestore.__all__) - explained_in_words} <= names
    assert {f"pyspark_statestore.Checkpoint.{name}" for name in ("of", "state", "convert", "url")} <= names
    words = (ROOT / "docs" / "reference" / "sessions.md").read_text(encoding="utf-8")
    assert all(f"`pyspark_statestore.{name}`" in words for name in ("OPTIONS", "SINK_OPTIONS"))


def test_docstrings_are_shown_as_markdown(site: Path) -> None:
    for page in (site / "reference").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r":(meth|class|func|attr|data|mod):", text), page
        assert "<blockquote>" not in text, page


def test_the_notebook_is_a_page_and_can_be_downloaded(site: Path) -> None:
    notebook = json.loads((ROOT / "examples" / "state_in_sql.ipynb").read_text(encoding="utf-8"))
    page = site / "project" / "notebook.html"
    text = page.read_text(encoding="utf-8")
    headings = [cell["source"][0] for cell in notebook["cells"] if cell["source"][0].startswith("#")]
    assert headings
    titles = [each.lstrip("# ").strip() for each in headings]
    assert [each for each in titles if f">{each}<a" not in text] == []
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(re.findall(r"<pre", text)) == len(code)
    (file,) = [link for link in read(page).links if link.endswith(".ipynb")]
    assert (page.parent / file).read_bytes() == (ROOT / "examples" / "state_in_sql.ipynb").read_bytes()
    for other in ("examples.html", "readme.html"):
        assert "notebook.html" in read(site / "project" / other).links


def test_the_front_page_shows_the_picture_first(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    article = text.partition("<article")[2].partition("</article>")[0]
    assert 0 < article.index("pictures/files.svg") < article.index("<p>Spark")
    assert {"tutorial.html", "is-it-for-me.html", "operations.html"} <= set(read(site / "index.html").links)


def test_a_page_that_is_a_file_has_what_its_search_needs(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    script = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert script == f"var __index = {index}"
    assert [page for page in pages(site) if not any(each.endswith(IN_A_FRAME) for each in read(page).loads)] == []


@needs_browser
def test_a_page_that_is_a_file_has_a_search(site: Path) -> None:
    text = elements(f"{(site / 'reference' / 'sinks.html').as_uri()}?q=PSS_NOT_A_SINK")

    links = re.findall(r'<a href="([^"?]*)[^"]*" class="md-search-result__link', text)
    assert (site / "errors.html").as_uri() in links
    assert all(Path(unquote(urlsplit(link).path)).is_file() for link in links)


class Tables(HTMLParser):
    """The tables of a page: the mark of each, and its cells with their labels."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str | None, list[list[tuple[str, str | None]]]]] = []
        self._shown: list[str] | None = None
        self.feed(text.partition("<article")[2].partition("</article>")[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "table":
            self.found.append((values.get("data-listed"), []))
        elif tag == "tr":
            self.found[-1][1].append([])
        elif tag in ("td", "th"):
            self._shown = []
            self._label = values.get("data-label")

    def handle_data(self, data: str) -> None:
        if self._shown is not None:
            self._shown.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._shown is not None:
            self.found[-1][1][-1].append(("".join(self._shown).strip(), self._label))
            self._shown = None


def test_cells_of_wide_tables_say_what_column_they_are_in(site: Path) -> None:
    kinds = set()
    for page in pages(site):
        for mark, (heads, *rows) in Tables(page.read_text(encoding="utf-8")).found:
            names = [name for name, _ in heads]
            assert mark or not any(len(shown) > 40 for row in rows for shown, _ in row[1:]), (page, names)
            kinds.add(mark)
            wanted = [None, *(name or None for name in names[1:])] if mark and len(names) > 2 else [None] * len(names)
            assert all([label for _, label in row] == wanted for row in rows), (page, names)
    assert {None, "2", "3", "4"} <= kinds


_TABLES = """[...document.querySelectorAll("article table")].map(table => ({
    width: table.offsetWidth, page: document.documentElement.clientWidth, head: table.rows[0].innerText,
    height: table.offsetHeight, cells: [...table.querySelectorAll("td")].filter(cell => cell.offsetHeight)
        .map(cell => [cell.offsetWidth, cell.offsetLeft]), overflow: document.documentElement.scrollWidth}))"""


@needs_browser
@pytest.mark.parametrize("name", ["command-line", "is-it-sound"])
def test_a_phone_shows_whole_lines_of_tables(site: Path, name: str) -> None:
    tables = measured(site / f"{name}.html", _TABLES, width=390)
    assert tables
    for table in tables:
        assert table["overflow"] <= table["page"]
        assert table["width"] <= table["page"]
        assert {width for width, _ in table["cells"]} == {table["width"] - 2}, table["head"]  # but for its border
    if name == "command-line":
        assert tables[0]["height"] < 3000
        beside = measured(site / f"{name}.html", _TABLES, width=1280)
        assert all(len({left for _, left in table["cells"]}) > 1 for table in beside)


_BRIGHTNESS = """[...document.querySelectorAll("article img")].map(image => {
    const canvas = document.createElement("canvas"), pen = canvas.getContext("2d")
    canvas.width = 300, canvas.height = 150
    pen.filter = window.getComputedStyle(image).filter
    pen.drawImage(image, 0, 0, 300, 150)
    const bytes = pen.getImageData(0, 0, 300, 150).data.filter((_, at) => at % 4 < 3)
    return bytes.reduce((sum, value) => sum + value, 0) / bytes.length / 255
})"""


@needs_browser
@pytest.mark.parametrize("name", ["index", "tutorial", "report"])
def test_pictures_are_dark_where_the_page_is(site: Path, name: str) -> None:
    (shown,) = measured(site / f"{name}.html", _BRIGHTNESS, dark=True)
    assert shown < 0.4
    if name == "index":
        (shown,) = measured(site / f"{name}.html", _BRIGHTNESS)
        assert shown > 0.6
