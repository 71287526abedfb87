"""Whether a session runs, and whether it is one that has a driver in this process."""

from __future__ import annotations

from typing import Any

from pyspark_statestore.errors import StateStoreFilesError


def is_connect(spark: Any) -> bool:
    """Whether it is the session of a Spark Connect client, which has no driver here."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_running(spark: Any) -> bool:
    """Whether a classic session has not been stopped; no session at all has."""
    context = getattr(getattr(spark, "_sc", None), "_jsc", None)
    try:
        return context is not None and not context.sc().isStopped()
    except Exception:  # py4j's, where the JVM is gone
        return False


def check_running(spark: Any, *, why_not_connect: str, action: str) -> None:
    """Refuses a session that is not classic, or not running.

    Args:
        spark: The session.
        why_not_connect: What is said of a Spark Connect session.
        action: What to do instead.

    Raises:
        StateStoreFilesError: PSS_SPARK_NOT_RUNNING.
    """
    if is_connect(spark):
        reason = f"This is a Spark Connect session, {why_not_connect}"
    elif not is_running(spark):
        reason = "The session is stopped"
    else:
        return
    raise StateStoreFilesError("PSS_SPARK_NOT_RUNNING", {"reason": reason, "action": action})
