"""Tables of Arrow in a notebook, for those who ask for them with ``%load_ext pyspark_statestore``.

The tables that this package returns are ``pyarrow.Table``, to which nobody but Arrow can add how they look: a subclass
would be lost with the first method that is called on it, and Arrow's class is everybody's. What a notebook shows is
IPython's to decide, and its formatters take a form for any class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 50
"""A table ends after so many rows, as on a terminal."""


def load_ipython_extension(ipython: Any) -> None:
    """Shows Arrow's tables as tables from now on: IPython calls this for ``%load_ext pyspark_statestore``.

    Args:
        ipython: IPython's shell.
    """
    import pyarrow as pa

    ipython.display_formatter.formatters["text/html"].for_type(pa.Table, html_of)


def unload_ipython_extension(ipython: Any) -> None:
    """Shows Arrow's tables as before: IPython calls this for ``%unload_ext pyspark_statestore``.

    Args:
        ipython: IPython's shell.
    """
    import pyarrow as pa

    ipython.display_formatter.formatters["text/html"].pop(pa.Table, None)


def html_of(table: pa.Table) -> str:
    """Returns a table as HTML: all columns under their own names, and the first rows.

    Args:
        table: Any table of Arrow's.
    """
    from pyspark_statestore import rendering

    forms = [rendering.form_of(field.name, field.type) for field in table.schema]
    shown = table.slice(0, MOST_ROWS)
    columns = [
        [_cell(rendering.cell([value], form), form in rendering.IS_NUMBER) for value in column.to_pylist()]
        for column, form in zip(shown.columns, forms, strict=True)
    ]
    heading = "".join(f"<th>{_escaped(name)}</th>" for name in table.column_names)
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns, strict=True))
    more = table.num_rows - MOST_ROWS
    note = f"<p>... and {more:,} more rows</p>" if more > 0 else ""
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>{note}"


def _cell(text: str, is_number: bool) -> str:
    style = ' style="text-align: right"' if is_number else ""
    return f"<td{style}>{_escaped(text)}</td>"


def _escaped(text: str) -> str:
    import html

    from pyspark_statestore.rendering import text as printable

    return html.escape(printable(text))
