"""Runs an HDFS until it is interrupted, and prints its URL."""

from __future__ import annotations

import signal
import sys

from benchmarks.local_hdfs import HdfsUnavailable, LocalHdfs


def main() -> int:
    """Runs it."""
    try:
        with LocalHdfs() as hdfs:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            print(hdfs.url, flush=True)
            signal.pause()
    except HdfsUnavailable as error:
        print(f"There is no HDFS: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
