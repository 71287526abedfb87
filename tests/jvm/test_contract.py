"""What Java and Python have to say alike: options, error ids, versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pyspark_statestore import OPTIONS, SINK_OPTIONS, StateStoreFilesError
from pyspark_statestore._version import __version__
from pyspark_statestore.conf import (
    REMOVED,
    REMOVED_OF_SINKS,
    SINK_PREFIX,
    Option,
    check_settings,
    what_is_removed,
)
from pyspark_statestore.errors import ERROR_CLASSES
from pyspark_statestore.storage.directory import READ_PARALLELISM
from tests.class_data import MINOR
from tests.jvm.harness import PREFIX, Checkpoint, java_error
from tests.streaming.test_metrics import log_lines

pytestmark = pytest.mark.spark


def test_ids(jvm: Any) -> None:
    ids = getattr(jvm.io.pyspark.statestore, "StateStoreFilesException$Id").values()
    assert {each.name() for each in ids} <= ERROR_CLASSES.keys()


@pytest.mark.parametrize(("home", "options"), [("Options", OPTIONS), ("SinkOptions", SINK_OPTIONS)])
def test_options_and_defaults(jvm: Any, home: str, options: Mapping[str, Option]) -> None:
    declared = dict(getattr(jvm.io.pyspark.statestore, home).defaults())

    assert declared == {name: option.default for name, option in options.items()}
    assert list(declared) == list(options)


@pytest.mark.parametrize(("home", "removed"), [("Options", REMOVED), ("SinkOptions", REMOVED_OF_SINKS)])
def test_options_that_there_are_no_more(jvm: Any, home: str, removed: Mapping[str, str]) -> None:
    declared = dict(getattr(jvm.io.pyspark.statestore, home).removed())

    assert declared == dict(removed)
    assert not declared.keys() & dict(getattr(jvm.io.pyspark.statestore, home).defaults()).keys()


def test_version(jvm: Any) -> None:
    assert jvm.io.pyspark.statestore.ShimInfo.version() == __version__


def test_both_read_as_much_at_once(jvm: Any) -> None:
    assert jvm.io.pyspark.statestore.files.Parallel.READS == READ_PARALLELISM


def java_says(jvm: Any, settings: dict[str, str]) -> str:
    """The error id with which Java refuses settings; empty if it takes them."""
    from py4j.protocol import Py4JJavaError

    conf = jvm.org.apache.hadoop.conf.Configuration(False)
    for key, value in settings.items():
        conf.set(key, value)
    try:
        # Static methods called "from" are keywords to Python.
        getattr(jvm.io.pyspark.statestore.Options, "from")(conf)
        getattr(jvm.io.pyspark.statestore.SinkOptions, "from")(conf, {})
    except Py4JJavaError as error:
        message = error.java_exception.getMessage()
        assert any(key in message for key in settings), message
        return str(error.java_exception.id())
    return ""


def python_says(settings: dict[str, str]) -> str:
    try:
        check_settings(settings)
    except StateStoreFilesError as error:
        return error.getErrorClass()
    return ""


LONGEST = ["36500d", "36501d", "99999999999d", "999999999999999d"]
VALUES = {
    "bytes": ["64k", "65536", "1 MB", "1g", "2GB", "63k", "0", "-1", "1t", "1.5m", "m", "", "1e9", "\u0665m", "9" * 16],
    "duration": ["4999ms", "5s", "10m", "10 MIN", "1h", "2d", "10", "0s", "-5s", "1w", "auto", "", "s", "1.5s"],
    "integer": ["1", "4", "64", "256", "0", "65", "257", "1.5", "4.0", "4d", "1e1", "+4", "four", "", "99999999999"],
    "number": ["1.05", "2", "1000", "2.50", "1", "1001", "NaN", "Infinity", "2f", "1e1", "0x1p3", "-2", "two", ""],
    "boolean": ["true", "FALSE", " true ", "yes", "1", ""],
    "choice": ["hflush", "HSYNC", "none", ""],
    "string": ["", "any.Thing"],
}


@pytest.mark.parametrize("name", [*OPTIONS, *SINK_OPTIONS])
def test_both_take_and_refuse_the_same_values(jvm: Any, name: str) -> None:
    option = {**OPTIONS, **SINK_OPTIONS}[name]
    differ = []
    for value in [*VALUES[option.type], *(LONGEST if option.type == "duration" else [])]:
        settings = {option.key: value}
        if java_says(jvm, settings) != python_says(settings):
            differ.append((value, java_says(jvm, settings), python_says(settings)))
    assert differ == []


@pytest.mark.parametrize(("closed_after", "idle_ms"), [("", 60_000), ("5s", 500), ("9m", 54_000), ("1h", 60_000)])
def test_rule_7_a_file_is_left_alone_long_before_others_count_it_as_closed(
    jvm: Any, closed_after: str, idle_ms: int
) -> None:
    conf = jvm.org.apache.hadoop.conf.Configuration(False)
    if closed_after:
        conf.set(PREFIX + "closedAfter", closed_after)
    options = getattr(jvm.io.pyspark.statestore.Options, "from")(conf)
    assert options.idleSealMs() == idle_ms
    assert 10 * idle_ms <= options.closedAfterMs()


@pytest.mark.parametrize(
    "key", [*(PREFIX + name for name in REMOVED), *(SINK_PREFIX + name for name in REMOVED_OF_SINKS)]
)
def test_an_option_that_there_is_no_more_is_told_and_nothing_else(jvm: Any, key: str) -> None:
    with log_lines(jvm, "io.pyspark.statestore.OptionTexts", "WARN") as lines:
        # Whatever its value is; and once in a process, which reads its options for each log.
        for value in ("1", "no such value"):
            assert java_says(jvm, {key: value}) == python_says({key: value}) == ""
    assert lines() == [f"{what}. What to do: {to_do}" for what, to_do in what_is_removed([key])]
    assert len(lines()) == 1


def test_options_that_do_not_exist(jvm: Any) -> None:
    settings = {PREFIX + "maxFilesize": "1m"}
    assert java_says(jvm, settings) == python_says(settings) == "PSS_UNKNOWN_OPTION"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shimVersion": "9.9.9"}, ["PSS_VERSION_MISMATCH", "9.9.9", __version__]),
        ({"maxFileSize": "big"}, ["PSS_INVALID_OPTION", PREFIX + "maxFileSize", "'big'", "128m"]),
        ({"maxfilesize": "1m"}, ["PSS_UNKNOWN_OPTION", PREFIX + "maxfilesize", "maxFileSize"]),
    ],
)
def test_nothing_is_written_with_settings_that_are_wrong(
    new_checkpoint: Callable[..., Checkpoint], options: dict[str, str], words: list[str]
) -> None:
    checkpoint = new_checkpoint(**options)

    with java_error(*words):
        checkpoint.write("0/0/1.delta")

    assert checkpoint.log is None
    assert not checkpoint.directory.exists()


def test_another_spark_is_refused(jvm: Any) -> None:
    info = jvm.io.pyspark.statestore.ShimInfo
    assert info.sparkMinor() == MINOR
    for version in ("3.4.1", f"{MINOR}0.0", "5.0.0-preview", MINOR):
        with java_error("PSS_WRONG_SPARK", version, f"for Spark {MINOR}", "jar-path"):
            info.checkSpark(version)
    info.checkSpark(f"{MINOR}.1-SNAPSHOT")
    info.checkSpark()
