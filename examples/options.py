"""How to run an example: its command-line options."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from examples import flights


@dataclass(frozen=True)
class Settings:
    """How to run an example: its command-line options.

    Attributes:
        state: "merged", or "stock" for plain Spark without this package.
        door: "provider" (a configuration key) or "path" (`merged+…` in front of the checkpoint's path).
        store: "rocksdb" or "heap".
        days: how many days of the year.
        work_dir: where input, checkpoint and result go.
        partitions: shuffle partitions, that is, state stores for each stateful operator.
        files_per_trigger: days in a batch.
    """

    state: str = "merged"
    door: str = "provider"
    store: str = "rocksdb"
    days: int = flights.YEAR_DAYS
    work_dir: Path = Path(tempfile.gettempdir()) / "pyspark-statestore-examples"
    partitions: int = 4
    files_per_trigger: int = 14


def with_settings(
    *,
    doors: tuple[str, ...] = ("provider", "path"),
    stores: tuple[str, ...] = ("rocksdb", "heap"),
    files_per_trigger: int | None = Settings.files_per_trigger,
) -> Any:
    """Adds the examples' options to a command, which gets them as one `Settings` before its own options.

    Args:
        doors: the doors that the example can take, the default one first.
        stores: the stores that it can use, the default one first.
        files_per_trigger: the default number of days in a batch; None if the example reads no flights.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**values: Any) -> None:
            given = {each.name: values.pop(each.name) for each in fields(Settings) if each.name in values}
            command(Settings(**given), **values)

        states = click.Choice(("merged", "stock"))
        chosen = [
            click.option("--state", type=states, default="merged", help="Stock is plain Spark."),
            click.option("--door", type=click.Choice(doors), default=doors[0], help="How merged state is switched on."),
            click.option("--store", type=click.Choice(stores), default=stores[0], help="Spark's state store."),
            click.option("--work-dir", type=click.Path(path_type=Path), default=Settings.work_dir),
            click.option("--partitions", type=click.IntRange(1), default=Settings.partitions),
        ]
        if files_per_trigger is not None:
            chosen += [
                click.option("--days", type=click.IntRange(2, flights.YEAR_DAYS), default=Settings.days),
                click.option("--files-per-trigger", type=click.IntRange(1), default=files_per_trigger),
            ]
        for option in reversed(chosen):
            call = option(call)
        return call

    return decorate
