"""Which Python Spark's workers are: that of the session's script, where all run on one machine and nobody says."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark_statestore.session.jvm import inherited_settings

VARIABLE = "PYSPARK_PYTHON"
_VARIABLES = (VARIABLE, "PYSPARK_DRIVER_PYTHON")
_SETTINGS = ("spark.pyspark.python", "spark.pyspark.driver.python")
_ONE_MACHINE = re.compile(r"local(\[.*\]|-cluster\[.*\])?\s*")


def start_with_own_python(builder: Any) -> None:
    """Makes a builder start its session with this Python for the workers, where :func:`own_python` says so.

    Spark takes ``python3`` from the PATH otherwise: in a script that an environment's Python runs without the
    environment being activated, this is another Python, which has neither this package nor its data source. It is
    decided when the session starts: until then the builder may get a master. Spark reads the variable then only, so
    other processes that the script starts do not inherit it.
    """
    start: Callable[[], Any] = builder.getOrCreate

    def get_or_create() -> Any:
        with _in_environment(own_python({**inherited_settings(), **builder._options})):
            return start()

    builder.getOrCreate = get_or_create


def own_python(settings: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> str | None:
    """Returns the Python to start workers with, or None where that is not ours to say.

    Args:
        settings: All that the session gets, from its builder and from elsewhere.
        environ: The environment.

    Returns:
        This process's Python in local mode, and None on a cluster, whose machines may have it elsewhere, and where a
        variable or a setting of Spark's names one.
    """
    if any(environ.get(name) for name in _VARIABLES) or any(settings.get(name) for name in _SETTINGS):
        return None
    # As Spark looks for it. The remote of a client that starts its own server is a master, too.
    named = (settings.get("spark.master"), environ.get("MASTER"), settings.get("spark.remote"))
    master = next((str(each) for each in (*named, environ.get("SPARK_REMOTE")) if each), "local[*]")
    # In a program that embeds Python, the executable is that program.
    is_python = os.path.basename(sys.executable or "").startswith(("python", "pypy"))
    return sys.executable if is_python and _ONE_MACHINE.fullmatch(master) else None


@contextmanager
def _in_environment(python: str | None) -> Iterator[None]:
    if python is None:
        yield
        return
    os.environ[VARIABLE] = python
    try:
        yield
    finally:
        if os.environ.get(VARIABLE) == python:
            del os.environ[VARIABLE]
