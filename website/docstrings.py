"""Makes docstrings, which are written for readers of the code, into Markdown for the site."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`(~?)([\w.]+)`")
_ONE_EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
_PAGE = re.compile(r"\bdocs/([\w-]+)\.md\b")


class HouseDocstrings(Extension):
    """Turns references to names, and to pages, into what Markdown has for them."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Changes the docstring of a module, a class, a function or an attribute, before it is parsed."""
        if obj.docstring is not None and not obj.is_alias:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """Returns a docstring without reStructuredText.

    ``:meth:`convert``` becomes code, ``Example:`` the section that MkDocs knows, ``docs/fork.md`` a link.
    """
    text = _ROLE.sub(lambda found: f"`{found[2].rpartition('.')[2] if found[1] else found[2]}`", docstring)
    text = _ONE_EXAMPLE.sub("Examples:", text)
    return _PAGE.sub(r"[\1](../\1.md)", text)
