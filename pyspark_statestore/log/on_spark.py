"""Runs independent pieces of work as one Spark job, on a classic session or over Spark Connect."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.session.jvm import check_running, is_connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Work = TypeVar("Work")
Result = TypeVar("Result")


def run_on_spark(spark: SparkSession, action: Callable[[Work], Result], work: Sequence[Work]) -> list[Result]:
    """Does each piece of work in a task of its own.

    The package has to be importable where tasks run; Spark may run a task twice, and another one after it failed.

    Args:
        spark: The session.
        action: Does one piece of work: a function of a module, or a partial of one.
        work: The pieces. They and the results have to be picklable.

    Returns:
        The results, in the order of the work.

    Raises:
        StateStoreFilesError: The first error that a task failed with.
        Exception: Whatever else Spark raises for a job that failed.
    """
    if not work:
        return []
    pieces = list(work)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict(
                    {"number": [number], "result": [_outcome(action, pieces[number])]},
                    schema=pa.schema([("number", pa.int64()), ("result", pa.binary())]),
                )

    with _active(spark):
        planned = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(run, "number long, result binary")
    rows = planned.collect()
    outcomes: dict[int, Any] = {row["number"]: pickle.loads(bytes(row["result"])) for row in rows}
    for outcome in outcomes.values():
        if isinstance(outcome, StateStoreFilesError):
            raise outcome
    return [outcomes[number] for number in range(len(pieces))]


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Makes the session the active one of this thread while a plan with Python functions is made.

    PySpark asks for the thread's active session then. A new thread has none, and PySpark would *start* one, even where
    the application has just been stopped.
    """
    if is_connect(spark):
        yield
        return
    from pyspark import SparkContext

    with SparkContext._lock:  # stopping needs it, too
        check_running(spark, why_not_connect="", action="Give a session that is running")
        # Spark 4.0 has moved the class to another package.
        sessions = getattr(spark._jvm, spark._jsparkSession.getClass().getName())
        before = sessions.getActiveSession()
        sessions.setActiveSession(spark._jsparkSession)
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


def _outcome(action: Callable[[Work], Result], piece: Work) -> bytes:
    # An error of this package is a result: Spark would try again in vain, and wrap the message into a stack trace.
    try:
        return pickle.dumps(action(piece))
    except StateStoreFilesError as error:
        return pickle.dumps(error)
