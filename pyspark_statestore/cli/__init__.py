"""The command line ``pyspark-statestore``."""
