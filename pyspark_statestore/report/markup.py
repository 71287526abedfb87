"""HTML that is safe by construction: text is escaped when it becomes part of an element, unless it is an element.

Names and paths come from directories that anybody may have written to, so no text reaches a page in another way.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

from pyspark_statestore import rendering

_VOID = frozenset(("meta", "br", "hr"))
"""Elements that have no end."""


class Markup(str):
    """HTML that needs no escaping any more. Only this module makes it."""

    __slots__ = ()


Part: TypeAlias = "str | Markup | Iterable[Part] | None"
"""What an element may hold: text, elements, or several of these; None for nothing."""


def element(name: str, /, *parts: Part, **attributes: object) -> Markup:
    """Makes an element.

    Args:
        name: The element's name.
        parts: What it holds.
        attributes: Its attributes. An underscore at the end of a name is left out (``class_``), any other one is a
            hyphen; attributes that are None are left out.
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{joined(*parts)}</{name}>")


def joined(*parts: Part) -> Markup:
    """Puts parts one behind the other."""
    return Markup("".join(_each(part) for part in parts))


def style(sheet: str) -> Markup:
    """Makes a style sheet of text of this package, whose content browsers do not unescape."""
    assert "</" not in sheet
    return Markup(f"<style>{sheet}</style>")


def document(head: Iterable[Markup], body: Iterable[Markup]) -> str:
    """Makes a whole page."""
    page = element("html", "\n", element("head", head), "\n", element("body", body), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _each(part: Part) -> str:
    if part is None:
        return ""
    if isinstance(part, Markup):
        return str(part)
    return _escaped(part) if isinstance(part, str) else joined(*part)


def _escaped(text: str) -> str:
    """Escapes text. What cannot be printed, as what turns the direction of text around, is shown by its number."""
    return html.escape(rendering.lines(text))
