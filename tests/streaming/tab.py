"""Reads the pages of Spark's tab "State files" as a browser does."""

from __future__ import annotations

import urllib.request
from html.parser import HTMLParser

from pyspark.sql import SparkSession


class Page(HTMLParser):
    """The tables of a page.

    Attributes:
        tables: By id, in rows; a cell is what is shown, and the exact figure by which Spark's script sorts.
        drawings: How many there are.
        scales: Of each chart, what stands beside and below it.
        health: What is said of the health of one checkpoint: the level, the words, and the figures that it leads to.
        links: Where its links lead.
        ids: What links of the page may lead to.
        text: The page as it came.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[tuple[str, str]]]] = {}
        self.drawings = 0
        self.scales: list[list[str]] = []
        self.health: list[tuple[str, str, list[str]]] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.text = text
        self._in_health = False
        self._row: list[tuple[str, str]] | None = None
        self._table: str | None = None
        self._key = ""
        self._shown: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values["id"]} if "id" in values else set()
        if tag == "a":
            self.links.append(values["href"])
            if self._in_health:
                self.health[-1][2].append(values["href"].removeprefix("#"))
        elif tag == "div" and values.get("class", "").startswith("sf-health "):
            self._in_health = True
            self.health.append((values["class"].removeprefix("sf-health sf-"), "", []))
        elif tag == "svg":
            self.scales.append([])
        elif tag == "text":
            self._shown = []
        if tag == "table" and values.get("id", "").startswith("state-files"):
            self._table = values["id"]
            self.tables[self._table] = []
        elif tag == "tr" and self._table:
            self.tables[self._table].append([])
        elif tag in ("td", "th") and self._table:
            self._shown, self._key = [], values.get("sorttable_customkey", "")
        elif tag == "polyline":
            self.drawings += 1

    def handle_data(self, data: str) -> None:
        if self._shown is not None:
            self._shown.append(data)
        if self._in_health:
            level, words, figures = self.health[-1]
            self.health[-1] = (level, f"{words} {data.strip()}".strip(), figures)

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._table = None
        elif tag == "div":
            self._in_health = False
        elif tag == "text" and self._shown is not None:
            self.scales[-1].append("".join(self._shown))
            self._shown = None
        elif tag in ("td", "th") and self._shown is not None and self._table:
            self.tables[self._table][-1].append(("".join(self._shown), self._key))
            self._shown = None

    def figures(self) -> dict[str, dict[str, tuple[str, str]]]:
        """What is shown of each checkpoint, by its location and the column's name; empty without the table of all."""
        rows = self.tables.get("state-files", [])
        names = [name for name, _ in rows[0]] if rows else []
        return {row[0][0]: dict(zip(names[1:], row[1:], strict=True)) for row in rows[1:]}

    def of_one(self) -> dict[str, tuple[str, str]]:
        """All that is shown of one checkpoint, by the name of the figure."""
        return {name: cell for group in self.groups().values() for name, cell in group.items()}

    def groups(self) -> dict[str, dict[str, tuple[str, str]]]:
        """As :meth:`of_one`, by the group that a figure belongs to. Each line says what its figure means, too."""
        begins = "state-files-of-one-"
        found = {table.removeprefix(begins): rows for table, rows in self.tables.items() if table.startswith(begins)}
        assert all(meaning for rows in found.values() for _, _, (meaning, _) in rows)
        return {group: {name: cell for (name, _), cell, _ in rows} for group, rows in found.items()}


def fetch(spark: SparkSession, path: str) -> str:
    """What an application's pages have at a path."""
    with urllib.request.urlopen(f"{spark.sparkContext.uiWebUrl}{path}", timeout=30) as answer:
        return str(answer.read().decode("utf-8"))


def tab(spark: SparkSession, query: str = "") -> Page:
    """The tab of an application as it is now."""
    return Page(fetch(spark, f"/state-files/{query}"))
