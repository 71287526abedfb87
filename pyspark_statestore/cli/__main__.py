"""Runs the command line as ``python -m pyspark_statestore.cli``, where its script is not on the PATH."""

from pyspark_statestore.cli.main import main

main()
