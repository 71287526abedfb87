"""How long RocksDB stores take to load, and to publish snapshots, by what they log.

Spark's own metric does not say the first: the second load of the same task, which does nothing, clears it. The second
is in no metric where maintenance publishes.
"""

from __future__ import annotations

import re
from pathlib import Path

_LOG4J = """
rootLogger.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.append = false
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %tid %d{{UNIX_MILLIS}} %m%n
logger.spark.name = org.apache.spark.sql.execution.streaming.state
logger.spark.level = info
logger.merged.name = io.pyspark.statestore
logger.merged.level = info
"""


def java_option(configuration: Path, log: str) -> str:
    """Writes a configuration of log4j.

    Args:
        configuration: Where to.
        log: The file that a process is to log to, as log4j understands it.

    Returns:
        The option with which a JVM takes it.
    """
    configuration.write_text(_LOG4J.format(log=log))
    return f"-Dlog4j2.configurationFile={configuration}"


class Loads:
    """The loads that a process logs.

    Args:
        log: The file.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0

    def seconds(self) -> list[float]:
        """What the loads since the last call took, from "Loading" to "Loaded" of the same thread; the longest first."""
        found, began = [], {}
        with self._log.open() as lines:
            lines.seek(self._read)
            text = lines.read()
            self._read = lines.tell()
        for thread, when, what in re.findall(r"^(\d+) (\d+) (Loading|Loaded) \d+\b", text, re.MULTILINE):
            if what == "Loading":
                began[thread] = int(when)
            elif thread in began:
                found.append((int(when) - began.pop(thread)) / 1000)
        return sorted(found, reverse=True)


def snapshot_seconds(log: Path) -> list[float]:
    """What each publishing of a snapshot took that a process has logged."""
    found = re.findall(r"Upload snapshot of version \d+,.* time taken: (\d+) ms", log.read_text())
    return [int(milliseconds) / 1000 for milliseconds in found]
