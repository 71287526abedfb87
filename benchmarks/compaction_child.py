"""One compaction in a process of its own, so that its memory is its own.

python -m benchmarks.compaction_child timed /path/to/checkpoint 1.5     # prints one line of JSON
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.file_calls import counted
from pyspark_statestore.checkpoint import Checkpoint


def peak_mb() -> float:
    """The most memory that this process has had, in MB.

    On Linux, ``ru_maxrss`` begins with the value of the parent process, so the process's own mark is read there.
    """
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(found[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux, bytes on macOS
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def compact(checkpoint: str, max_space_amplification: float) -> dict[str, Any]:
    """Compacts, and measures that without the imports before it.

    Returns:
        seconds, before_mb and peak_mb of memory, and the counts of the compaction.
    """
    import pyarrow.compute

    import pyspark_statestore.maintenance.compaction  # noqa: F401

    # The first array brings in pandas, where that is installed.
    pyarrow.array([0])
    maintenance = Checkpoint(checkpoint).maintenance
    before = peak_mb()
    begin = time.perf_counter()
    done = maintenance.compact(max_space_amplification=max_space_amplification)
    seconds = time.perf_counter() - begin
    counts = {name: value for name, value in vars(done).items() if name.endswith("_count")}
    return {"seconds": seconds, "before_mb": before, "peak_mb": peak_mb(), **counts}


def main() -> None:
    """Writes the answer to stdout."""
    how, checkpoint, amplification = sys.argv[1:]
    if how == "timed":
        answer = compact(checkpoint, float(amplification))
    else:
        with counted() as calls:
            answer = compact(checkpoint, float(amplification))
        answer["calls"] = calls.totals()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
