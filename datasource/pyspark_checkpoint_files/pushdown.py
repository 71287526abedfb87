"""Filter pushdown: the filters of a query that narrow a read to some stores."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_COLUMNS = {"operator_id": int, "partition_id": int, "store_name": str}


def is_offered() -> bool:
    """Whether Spark offers filters to the readers in this Python process.

    A reader that takes filters fails every query while ``spark.sql.python.filterPushdown.enabled`` is off, and Spark
    does not say whether it is. But where it is on, Spark plans reads in a worker module of its own.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or (spec is not None and spec.name == _WORKER)


@dataclass(frozen=True)
class Pushed:
    """The result of a pushdown.

    Attributes:
        narrowed: The values that the read is narrowed to, by column.
        nothing: Whether two filters contradict each other, so that no row matches.
        rest: The filters that Spark must apply itself.
    """

    narrowed: dict[str, Any]
    nothing: bool
    rest: list[Filter]


def push(filters: Iterable[Filter], given: dict[str, Any]) -> Pushed:
    """Takes the equalities about stores.

    The columns about stores are either all null in a row or none is, so an equality makes ``IS NOT NULL`` superfluous.

    Args:
        filters: The filters of the query, which a row must all match.
        given: The values that the options narrow the read to.
    """
    from pyspark.sql.datasource import EqualNullSafe, EqualTo, IsNotNull  # Spark 4.0 has no filters to offer

    narrowed, nothing, rest = dict(given), False, []
    for each in filters:
        column = ".".join(getattr(each, "attribute", ()))
        # Compare the types: a bool is an int in Python.
        if isinstance(each, (EqualTo, EqualNullSafe)) and type(each.value) is _COLUMNS.get(column):
            nothing |= narrowed.setdefault(column, each.value) != each.value
        else:
            rest.append(each)
    if narrowed:
        rest = [each for each in rest if not (isinstance(each, IsNotNull) and ".".join(each.attribute) in _COLUMNS)]
    return Pushed(narrowed, nothing, rest)
