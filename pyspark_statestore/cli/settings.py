"""The command that prints the settings that ``configure`` makes, for where no Python makes them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping

import click

from pyspark_statestore.cli.commands import Command
from pyspark_statestore.cli.echo import say
from pyspark_statestore.cli.options import Setting
from pyspark_statestore.errors import StateStoreFilesError


def _properties(settings: Mapping[str, str]) -> str:
    width = max(map(len, settings))
    return "\n".join(f"{key:<{width}}  {value}" for key, value in settings.items())


def _submit(settings: Mapping[str, str]) -> str:
    return " \\\n".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in settings.items())


def _calls(settings: Mapping[str, str]) -> str:
    # JSON's strings are Scala's and Python's, too.
    return "\n".join(f"  .config({json.dumps(key)}, {json.dumps(value)})" for key, value in settings.items())


def _json(settings: Mapping[str, str]) -> str:
    return json.dumps(settings, indent=2)


_FORMS: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "properties": _properties,
    "submit": _submit,
    "builder": _calls,
    "json": _json,
}
_PARTS = ("all", "start", "session")


@click.command(
    "settings",
    cls=Command,
    examples=[
        "pyspark-statestore settings >> $SPARK_HOME/conf/spark-defaults.conf",
        "pyspark-statestore settings --mode path --store heap --as builder",
        "pyspark-statestore settings --spark 4.2 --jar hdfs://nn/jars/shim.jar --option max_file_size=64m",
        "pyspark-statestore settings --part session --as builder",
    ],
)
@click.option(
    "--mode", type=click.Choice(["provider", "path"]), default="provider", show_default=True, help="The door."
)
@click.option(
    "--store",
    type=click.Choice(["rocksdb", "heap"]),
    default="rocksdb",
    show_default=True,
    help="What holds the state.",
)
@click.option("--sink", is_flag=True, help="File sinks without small files, too.")
@click.option(
    "--option", "given", type=Setting(), multiple=True, help="An option of configure, such as max_file_size=64m."
)
@click.option("--spark", help="The version of Spark; that of the installed PySpark if not given.")
@click.option("--jar", help="Where the jar is for that Spark; the one in this package if not given.")
@click.option(
    "--part",
    type=click.Choice(_PARTS),
    default="all",
    show_default=True,
    help="start: only what Spark takes when an application or a Connect server starts. session: only what a session "
    "can set, too, such as that of a Connect client.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(list(_FORMS)),
    default="properties",
    show_default=True,
    help="properties: for spark-defaults.conf. submit: for spark-submit and start-connect-server.sh. builder: calls of "
    "SparkSession.builder, in Scala, Java and Python.",
)
def settings_command(
    mode: str,
    store: str,
    sink: bool,
    given: tuple[tuple[str, str], ...],
    spark: str | None,
    jar: str | None,
    part: str,
    form: str,
) -> None:
    """Print the settings that configure makes in Python.

    Use them for spark-defaults.conf, for applications in Scala or Java, and for a Spark Connect server. See
    docs/turn-it-on.md.
    """
    from pyspark_statestore.session.configure import start_settings
    from pyspark_statestore.session.doors import SUPPORTED_SPARK, door_settings, without_effect
    from pyspark_statestore.session.jvm import jar_path

    settings: dict[str, str] = {}
    if part != "session":
        settings |= start_settings({}, jar or jar_path(spark))
    if part != "start":
        try:
            settings |= door_settings({}, mode=mode, store=store, sink=sink, options=dict(given)).set
        except StateStoreFilesError as error:
            raise click.BadParameter(str(error), param_hint="--option") from error
        for what, to_do in without_effect({}, spark or SUPPORTED_SPARK[-1], mode=mode, sink=sink, options=dict(given)):
            said = re.sub(r"mode='(\w+)'", r"--mode \1", f"{what}. What to do: {to_do}.").replace("sink=True", "--sink")
            say(said, err=True)
    click.echo(_FORMS[form](dict(sorted(settings.items()))))
