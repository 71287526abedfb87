"""``python -m pyspark_statestore.cli``, for where the script is not on the PATH."""

from pyspark_statestore.cli.main import main

main()
