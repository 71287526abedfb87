"""Where HDFS's server classes come from: an old PySpark whose source archive still carries them.

pip fetches it from the package index that it is configured for, checks it against a pinned hash and unpacks it; the few
jars that the servers need are kept in a cache directory of the user's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = "pyspark==2.4.8"
SHA256 = "3a19b71b8dc8dd91ebc943604a05e1ab01bce052456d42937035632d852d78dc"
CACHE_VARIABLE = "PYSPARK_STATESTORE_HDFS_CACHE"
"""The environment variable that says where to keep the jars instead of the user's cache directory."""

SERVER_JAR = "hadoop-hdfs-2.7.3.jar"
_NEEDED = re.compile(
    r"(apache-log4j-extras|commons-(cli|codec|collections|configuration|io|lang|logging)|guava"
    r"|hadoop-(annotations|auth|common|hdfs|mapreduce-client-core)|htrace-core|jackson-(core|mapper)-asl"
    r"|javax\.servlet-api|javax\.ws\.rs-api|jcl-over-slf4j|jetty|jetty-util|log4j|netty|netty-all|protobuf-java"
    r"|slf4j-api|slf4j-log4j12|xercesImpl|xmlenc)-\d[^-]*(-incubating)?\.jar"
)


class HdfsUnavailable(Exception):
    """There is no HDFS to be had here; the message says why."""


def cache_directory() -> Path:
    """Where the jars are kept: what the environment says, else a place in the user's cache directory."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "pyspark-statestore" / "hdfs"


def server_jars() -> list[Path]:
    """The jars of an HDFS server, downloaded if they are not in the cache.

    Returns:
        All that its class path needs.

    Raises:
        HdfsUnavailable: If they cannot be had.
    """
    # By the archive's hash: another archive gets another place.
    home = cache_directory() / SHA256[:16]
    if not home.is_dir():
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=home.parent, prefix="download-") as scratch:
                _fill(Path(scratch), home)
        except OSError as error:
            raise HdfsUnavailable(f"{home} cannot be written: {error}") from error
    return sorted(home.glob("*.jar"))


def _fill(scratch: Path, home: Path) -> None:
    requirements, temporary, jars = scratch / "requirements.txt", scratch / "tmp", scratch / "jars"
    requirements.write_text(f"{ARCHIVE} --hash=sha256:{SHA256}\n")
    temporary.mkdir()
    jars.mkdir()
    command = [
        *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--progress-bar=off"),
        *("--retries", "1", "--timeout", "30", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"),
        # What was unpacked stays: newer Pythons cannot run that archive's set-up script, and pip gives up after it.
        *("--no-clean", "--dest", str(scratch / "archive"), "--requirement", str(requirements)),
    ]
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    except subprocess.TimeoutExpired as error:
        raise HdfsUnavailable(f"downloading {ARCHIVE} took more than {error.timeout:.0f} s") from error
    unpacked = next(temporary.rglob(SERVER_JAR), None)
    if unpacked is None:
        said = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
        raise HdfsUnavailable(f"pip could not download {ARCHIVE}: {' '.join(said[-3:]) or 'it said nothing'}")
    for jar in unpacked.parent.glob("*.jar"):
        if _NEEDED.fullmatch(jar.name):
            shutil.move(jar, jars / jar.name)
    try:
        jars.rename(home)
    except OSError:
        if not home.is_dir():  # else another process was faster
            raise
