"""Groups and filters Arrow tables in the calling thread, never in Arrow's own threads.

One of Arrow's threads may drop the last reference to memory that NumPy owns, a moment after it gave its result. Where
the process ends in that moment, Python ends the thread inside Arrow's C++, and C++ aborts the whole process with
"terminate called without an active exception". So the command line once ended after it had written its result.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc


def grouped(table: pa.Table, keys: str | Sequence[str]) -> pa.TableGroupBy:
    """As ``table.group_by``, in the calling thread."""
    return table.group_by(keys if isinstance(keys, str) else list(keys), use_threads=False)


def filtered(table: pa.Table, expression: pc.Expression) -> pa.Table:
    """As ``table.filter`` with an expression, in the calling thread. A mask needs no thread, and not this function."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    chosen = acero.Declaration("filter", acero.FilterNodeOptions(expression), [source])
    return chosen.to_table(use_threads=False)
