"""Which of a query's filters are worth handing over."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, IsNotNull

_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_COLUMNS = {"operator_id": int, "partition_id": int, "store_name": str}


def is_offered() -> bool:
    """Whether this Python process is the one that Spark asks for filters.

    A reader that takes filters fails every query while ``spark.sql.python.filterPushdown.enabled`` is off, and nobody
    tells it whether it is; but Spark plans a read in another worker module where it is on.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or (spec is not None and spec.name == _WORKER)


@dataclass(frozen=True)
class Pushed:
    """What became of a query's filters.

    Attributes:
        narrowed: Values by column that the read is narrowed to.
        nothing: Whether two of them contradict each other, so that there is no row.
        rest: The filters that Spark has to apply.
    """

    narrowed: dict[str, Any]
    nothing: bool
    rest: list[Filter]


def push(filters: Iterable[Filter], given: dict[str, Any]) -> Pushed:
    """Takes the equalities about stores; all of these columns are null together or not at all.

    Args:
        filters: Of the query, all of which have to hold.
        given: What the options narrow the read to.
    """
    narrowed, nothing, rest = dict(given), False, []
    for each in filters:
        column = ".".join(getattr(each, "attribute", ()))
        # By its type: a bool is an int to Python.
        if isinstance(each, (EqualTo, EqualNullSafe)) and type(each.value) is _COLUMNS.get(column):
            nothing |= narrowed.setdefault(column, each.value) != each.value
        else:
            rest.append(each)
    if narrowed:
        rest = [each for each in rest if not (isinstance(each, IsNotNull) and ".".join(each.attribute) in _COLUMNS)]
    return Pushed(narrowed, nothing, rest)
