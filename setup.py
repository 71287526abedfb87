"""Adds one step to a plain setuptools build: the JVM shim is compiled before the package data is collected."""

import runpy
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPyWithShim(build_py):
    """Builds the jar first, so that wheels contain it and editable installs find it in the source tree."""

    def run(self) -> None:
        """Compiles the shim, then does what setuptools does."""
        script = Path(__file__).resolve().parent / "jvm-shim" / "build.py"
        main = runpy.run_path(str(script))["main"]
        if main([]) != 0:
            sys.exit("pyspark-statestore: the JVM shim could not be built; the reason is above")
        if not self.editable_mode:
            # What an earlier build has left here would be installed, too: another Spark's jar of old sources.
            for package in {name.partition(".")[0] for name in self.distribution.packages or ()}:
                shutil.rmtree(Path(self.build_lib) / package, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": BuildPyWithShim})
