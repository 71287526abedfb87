"""Reads a page as a browser would: elements that are balanced, tables by their labels, tiles, cards."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "hr"}
LOADING = {
    "script",
    "link",
    "iframe",
    "img",
    "image",
    "object",
    "embed",
    "audio",
    "video",
    "source",
    "base",
    "form",
    "use",
}


class Page(HTMLParser):
    """A parsed page.

    Attributes:
        tables: By label, the cells of each row, headings first.
        tiles: By label, the value and the note.
        lines: By the width of the page, how many tiles are in the line of each.
        cards: Of each card, its level, its heading, and what can be pasted.
        text: All text, without style sheets.
        elements: Every element with its attributes.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: dict[str, list[list[str]]] = {}
        self.tiles: dict[str, tuple[str, str]] = {}
        self.lines: dict[str, list[int]] = {}
        self.cards: list[tuple[str, str, list[str]]] = []
        self.text = ""
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[str] = []
        self._label = ""
        self._tile: list[str] = []
        assert html.startswith("<!DOCTYPE html>\n<html")
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert len(found) == len(attrs), f"an attribute twice: {attrs}"
        self.elements.append((tag, found))
        kinds = (found.get("class") or "").split()
        if tag == "div" and found.get("role") == "region":
            self._label = found["aria-label"] or ""
            assert self._label not in self.tables, "two tables with one label"
            self.tables[self._label] = []
        elif tag == "tr":
            self.tables[self._label].append([])
        elif "tile" in kinds:
            self._tile = []
            for width, number in (each.split(":") for each in (found["style"] or "").split(";")):
                self.lines.setdefault(width.removeprefix("--"), []).append(int(number))
        elif "card" in kinds:
            self.cards.append((kinds[-1], "", []))
        if tag not in VOID:
            self._open.append((tag, found))
            self._texts.append("")

    def handle_endtag(self, tag: str) -> None:
        opened, attributes = self._open.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"
        text = self._texts.pop()
        if self._texts:
            self._texts[-1] += text
        inside = [(attributes.get("class") or "").split() for _, attributes in self._open]
        if tag in ("td", "th"):
            self.tables[self._label][-1].append(text)
        elif any("tile" in kinds for kinds in inside) and tag in ("span", "b"):
            self._tile.append(text)
        elif "tile" in (attributes.get("class") or "").split():
            label, value, note = self._tile
            self.tiles[label] = (value, note)
        elif any("card" in kinds for kinds in inside) and tag in ("h3", "pre"):
            level, heading, pasted = self.cards[-1]
            self.cards[-1] = (level, text, pasted) if tag == "h3" else (level, heading, [*pasted, text])

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] != "style":
            self.text += data
            self._texts[-1] += data

    def figures(self, label: str) -> dict[str, str]:
        """The table of all figures: the value by the figure's name."""
        return {row[0]: row[1] for row in self.tables[label][1:]}

    def column(self, label: str, heading: str) -> list[str]:
        """A column of a table."""
        at = self.tables[label][0].index(heading)
        return [row[at] for row in self.tables[label][1:]]


def loads(html: str) -> list[str]:
    """What a page would fetch or run; nothing should."""
    page = Page(html)
    found = [tag for tag, _ in page.elements if tag in LOADING]
    for tag, attributes in page.elements:
        found += [
            f"{tag} {key}"
            for key in attributes
            if key in ("src", "href", "xlink:href", "srcset", "srcdoc") or key[:2] == "on"
        ]
        found += [f"{tag} style" for _ in [0] if "url(" in (attributes.get("style") or "")]
    sheet = html[html.index("<style>") : html.index("</style>")]
    found += [word for word in ("url(", "@import", "http:", "https:", "//") if word in sheet]
    return found
