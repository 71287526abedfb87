"""Makes a site of pages that are written for people who read them as plain files.

MkDocs calls the functions whose names begin with ``on_``. They make three things the same as where the repository is
shown: links to files outside of docs/ lead to pages of the site, headings have the anchors that GitHub gives them, and
what its Markdown allows and MkDocs' does not is put in MkDocs' words. A notebook becomes a page. Tables that a phone
has no room for are marked, with what their style sheet needs to make a list of them there. A page that is gone leads to
the one that answers its question now.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

PROJECT_PAGES = {
    "README.md": "project/readme.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "examples/README.md": "project/examples.md",
    "examples/state_in_sql.ipynb": "project/notebook.md",
}
"""Pages of the site that are not in docs/: where they are in the repository, and on the site."""

FORMER_PAGES = {
    "metrics.md": "monitoring.md",
    "settings.md": "turn-it-on.md#without-python",
    "upgrade.md": "versions.md#how-do-i-upgrade-this-package",
    "what-fills-my-checkpoint.md": "keep-it-small.md#what-fills-it",
    "wrong-door.md": "operations.md#the-query-was-started-through-the-wrong-door",
}
"""Pages of docs/ that are gone, and what answers their questions now."""

_FORMER_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<meta name="robots" content="noindex">
<meta http-equiv="refresh" content="0; url={target}">
<link rel="canonical" href="{target}">
</head>
<body><p>This page is now <a href="{target}">{target}</a>.</p></body>
</html>
"""

_IN_REPOSITORY = {on_site: path for path, on_site in PROJECT_PAGES.items()}
_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_FENCE_WITH_WORDS = re.compile(r"^( *```\w+) \w+$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?://|#)([^)\s#]+)(#[^)\s]*)?\)")
_CODE_IN_TABLE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<t([hd])([^>]*)>(.*?)</t[hd]>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")

_PHONE = 40
"""Characters of a table that a phone shows side by side, with what is between columns."""

_FIGURE = 24
"""A cell with more characters says something; one with fewer is a figure, to be compared with those beside it."""


def anchor_of(heading: str, separator: str = "-") -> str:
    """Returns the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", separator)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets what a file in YAML cannot: a function."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor_of
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/, and the files that these show by a link."""
    for path, on_site in PROJECT_PAGES.items():
        if path.endswith(".ipynb"):
            files.append(File.generated(config, on_site, content=_notebook(path)))
            files.append(File.generated(config, f"project/files/{path}", abs_src_path=str(ROOT / path)))
        else:
            files.append(File.generated(config, on_site, abs_src_path=str(ROOT / path)))
        for link, _ in _LINK.findall((ROOT / path).read_text(encoding="utf-8")):
            target = _target(path, link)
            if target not in PROJECT_PAGES and not target.startswith("docs/") and (ROOT / target).is_file():
                files.append(File.generated(config, _on_site(target), abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Puts a page in MkDocs' words."""
    source = page.file.src_uri
    here = _IN_REPOSITORY.get(source, f"docs/{source}")

    def link(found: re.Match[str]) -> str:
        target = _target(here, found[1])
        if not (ROOT / target).is_file():
            return found[0]
        return f"]({posixpath.relpath(_on_site(target), posixpath.dirname(source))}{found[2] or ''})"

    def text(part: str) -> str:
        return _CODE_IN_TABLE.sub(lambda code: code[0].replace(r"\|", "|"), _LINK.sub(link, part))

    return _outside_fences(_FENCE_WITH_WORDS.sub(r"\1", markdown), text)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Marks tables of sentences that a phone has no room for. Their cells say what column they are in."""
    return _TABLE.sub(lambda found: _labelled(found[0]), content)


def on_post_build(config: MkDocsConfig) -> None:
    """Leaves a page that leads on where a page was."""
    for former, now in FORMER_PAGES.items():
        page, _, anchor = now.partition("#")
        target = page.replace(".md", ".html") + (f"#{anchor}" if anchor else "")
        Path(config.site_dir, former).with_suffix(".html").write_text(_FORMER_PAGE.format(target=target), "utf-8")


def on_env(env: Any, config: MkDocsConfig, files: Files) -> None:
    """Tells templates which page is the first one."""
    env.globals["is_front"] = lambda page: page is not None and page.file.src_uri == "index.md"


def _labelled(table: str) -> str:
    """A table whose cells have labels, if it has sentences and a phone has no room for it; else the table as it is."""
    rows = [[_text(cell) for _, _, cell in _CELL.findall(row)] for row in _ROW.findall(table)]
    longest = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sum(longest) + 3 * len(longest) <= _PHONE or max(longest[1:], default=0) <= _FIGURE:
        return table
    # Of two columns, the second is what is said of the first: no row needs to say it again.
    labels = iter([["", *(rows[0][1:] if len(rows[0]) > 2 else [""])]] * len(rows))

    def labelled(row: re.Match[str]) -> str:
        names = iter(next(labels))

        def cell(found: re.Match[str]) -> str:
            name, (kind, attributes, shown) = next(names), found.groups()
            if kind == "d" and name:
                attributes += f' data-label="{html.escape(name)}"'
            return f"<t{kind}{attributes}>{shown}</t{kind}>"

        return _CELL.sub(cell, row[0])

    return _ROW.sub(labelled, table).replace("<table>", f'<table data-listed="{len(rows[0])}">', 1)


def _text(cell: str) -> str:
    """What a reader sees of a cell."""
    return html.unescape(_TAG.sub("", cell)).strip()


def _notebook(path: str) -> str:
    """A notebook as a page: its text as it is, its code in blocks. It is kept without output."""
    parts = []
    for cell in json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
    parts.append(f"This page is a notebook, `{path}`: [download it](files/{path}), and open it in Jupyter.")
    return "\n\n".join(parts)


def _outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """Changes all of a page but its blocks of code."""
    parts = _FENCED.split(markdown)
    return "".join(part if at % 2 else change(part) for at, part in enumerate(parts))


def _target(page: str, link: str) -> str:
    """Where a link of a page leads in the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _on_site(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path in PROJECT_PAGES:
        return PROJECT_PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"project/files/{path}"
