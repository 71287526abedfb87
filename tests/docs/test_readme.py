"""What the README says installs the package, in fresh environments."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from pyspark_statestore import __version__
from tests.packaging.test_wheel import PIP, ROOT, checkout, environment_without, link_needed, wheel

__all__ = ["checkout", "wheel"]

# `make test` has one of these files, `make test-rest` the others.
pytestmark = [pytest.mark.slow, pytest.mark.sweep(0, files="what a reader runs first")]


def commands_of_the_readme() -> list[str]:
    """The blocks of commands with which the README installs the package."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Install it\n")[2].partition("\n## ")[0]
    return re.findall(r"^```bash\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


NEWEST, ANOTHER, WHEEL = commands_of_the_readme()


@pytest.mark.parametrize(
    ("commands", "with_pyspark"),
    [
        pytest.param(ANOTHER, True, id="another PySpark"),
        pytest.param(WHEEL, True, id="the wheel"),
        # It downloads half a gigabyte, PySpark twice.
        pytest.param(NEWEST, False, id="the newest PySpark", marks=pytest.mark.left_out),
    ],
)
def test_what_the_readme_says_installs_it(
    checkout: Path, wheel: Path, tmp_path: Path, commands: str, with_pyspark: bool
) -> None:
    """In an environment as Python 3.12 makes it: with pip, and without setuptools."""
    copy, home = tmp_path / "checkout", tmp_path / "environment"
    shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns("build", "jars", "*.egg-info"))
    (copy / "dist").mkdir()
    shutil.copy(wheel, copy / "dist")
    venv.create(home, with_pip=True, system_site_packages=False)
    python = str(home / "bin" / "python")
    subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "wheel"], check=True)
    if with_pyspark:
        link_needed(wheel, home)
    if commands != WHEEL:
        asked = [*PIP, "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "downloads"), "setuptools"]
        if subprocess.run(asked, capture_output=True, check=False).returncode != 0:
            pytest.skip("no package index can be reached from here")
    variables = {**environment_without(), "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(home)}

    def run(script: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", script], cwd=copy, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    run(commands)
    jar = run(f"cd {tmp_path} && pyspark-statestore jar-path").strip()
    assert Path(jar).is_relative_to(home)
    minor = run(f"cd {tmp_path} && python -c 'import pyspark; print(pyspark.__version__)'").rpartition(".")[0]
    assert Path(jar).name == f"pyspark-statestore-shim-spark-{minor}-{__version__}.jar"
    assert [path.name for path in Path(jar).parent.glob("*.jar")] == [Path(jar).name]
