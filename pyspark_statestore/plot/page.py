"""A page about a checkpoint that needs nothing else: the picture as SVG, and the summary as a table."""

from __future__ import annotations

import html

from pyspark_statestore.cli import cells
from pyspark_statestore.cli.views import form_of
from pyspark_statestore.inspect import TABLES
from pyspark_statestore.plot.figure import Picture

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{url}</title>
<style>
body {{ font-family: sans-serif; max-width: 70em; margin: 1em auto; }}
svg {{ width: 100%; height: auto; }}
td {{ padding: 0.1em 1em 0.1em 0; }}
td:nth-child(2) {{ text-align: right; }}
td:nth-child(3) {{ color: #555; }}
</style>
</head>
<body>
<h1>{url}</h1>
{svg}
<h2>Summary</h2>
<table>
{rows}
</table>
</body>
</html>
"""


def page_of(picture: Picture) -> str:
    """Returns the HTML; nothing in it is loaded from elsewhere.

    Args:
        picture: Of the checkpoint.
    """
    rows = []
    for column in TABLES["summary"]:
        shown = cells.exact(picture.summary[column.name], form_of(column.name, column.type))
        cells_of_row = (column.name, shown, column.about)
        rows.append("<tr>" + "".join(f"<td>{html.escape(each)}</td>" for each in cells_of_row) + "</tr>")
    return _PAGE.format(url=html.escape(picture.url), svg=picture.svg(), rows="\n".join(rows))
