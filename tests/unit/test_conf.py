"""The options: grammar, bounds, names."""

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_statestore import OPTIONS, StateStoreFilesError
from pyspark_statestore.conf import (
    PREFIX,
    REMOVED,
    REMOVED_OF_SINKS,
    SINK_PREFIX,
    check_settings,
    settings_of,
    what_is_removed,
)


@pytest.mark.parametrize("name", OPTIONS)
def test_defaults_are_allowed_and_documented(name: str) -> None:
    option = OPTIONS[name]

    option.parse(option.default)

    assert option.key == PREFIX + name
    assert option.doc.endswith(".")
    assert option.allowed


def test_python_names() -> None:
    names = {option.python_name for option in OPTIONS.values()}

    assert {"max_file_size", "group_commit_max_wait", "compaction_enabled", "flush", "closed_after"} <= names
    assert len(names) == len(OPTIONS)


@pytest.mark.parametrize(
    ("name", "value", "parsed", "rendered"),
    [
        ("maxFileSize", "128m", 128 << 20, "128m"),
        ("maxFileSize", " 1GB ", 1 << 30, "1gb"),
        ("maxFileSize", "64 K", 64 << 10, "64 k"),
        ("maxFileSize", 1 << 20, 1 << 20, "1048576"),
        ("cache.sizeLimit", "0", 0, "0"),
        ("closedAfter", "2min", 120_000, "2min"),
        ("closedAfter", timedelta(seconds=90), 90_000, "90000ms"),
        ("groupCommit.maxWait", "auto", "auto", "auto"),
        ("groupCommit.maxWait", "0ms", 0, "0ms"),
        ("maxSpaceAmplification", 1.5, 1.5, "1.5"),
        ("maxOpenFiles", 2, 2, "2"),
        ("compaction.enabled", False, False, "false"),
        ("compaction.enabled", "TRUE", True, "true"),
        ("flush", "hsync", "hsync", "hsync"),
        ("groupCommit.scope", "batch", "batch", "batch"),
    ],
)
def test_values(name: str, value: object, parsed: object, rendered: str) -> None:
    assert OPTIONS[name].parse(value) == parsed
    assert OPTIONS[name].render(value) == rendered


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxFileSize", "128q"),
        ("maxFileSize", "63k"),
        ("maxFileSize", "-1m"),
        ("maxFileSize", "1.5m"),
        ("maxFileSize", ""),
        ("maxFileSize", True),
        ("maxFileSize", "999999999999999g"),
        ("maxFileSize", "\N{FULLWIDTH DIGIT ONE}00k"),
        ("maxOpenFiles", "0"),
        ("maxOpenFiles", "65"),
        ("maxOpenFiles", "4k"),
        ("maxSpaceAmplification", "1.0"),
        ("maxSpaceAmplification", "nan"),
        ("maxSpaceAmplification", float("inf")),
        ("maxSpaceAmplification", "1_0"),
        ("compaction.enabled", "yes"),
        ("compaction.enabled", 1),
        ("flush", "fsync"),
        ("groupCommit.scope", "query"),
        ("closedAfter", "60"),
        ("closedAfter", 60),
        ("closedAfter", "4999ms"),
        ("groupCommit.maxWait", "soon"),
        ("groupCommit.maxWait", "auto "[:3]),
        ("indexService.enabled", None),
    ],
)
def test_bad_values_name_key_value_and_what_is_allowed(name: str, value: object) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_INVALID_OPTION") as caught:
        OPTIONS[name].parse(value)

    assert caught.value.getMessageParameters() == {
        "key": PREFIX + name,
        "value": str(value),
        "allowed": OPTIONS[name].allowed,
    }


@given(st.text(max_size=12))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    for option in OPTIONS.values():
        try:
            value = option.parse(text)
        except StateStoreFilesError as error:
            assert error.getErrorClass() == "PSS_INVALID_OPTION"
        else:
            assert option.parse(option.render(text)) == value


@given(st.integers(1, 10**6), st.sampled_from(["k", "kb", "m", "mb", "g", "gb"]))
def test_sizes(number: int, unit: str) -> None:
    assert OPTIONS["cache.sizeLimit"].parse(f"{number}{unit}") == number * 1024 ** (" kmg".index(unit[0]))


def test_keyword_arguments_become_settings() -> None:
    settings = settings_of({"max_file_size": "64m", "group_commit_max_wait": "5ms", "compaction_enabled": False})

    assert settings == {
        f"{PREFIX}maxFileSize": "64m",
        f"{PREFIX}groupCommit.maxWait": "5ms",
        f"{PREFIX}compaction.enabled": "false",
    }


@pytest.mark.parametrize("name", ["max_filesize", "maxFileSize", "file_manager_class", "shim_version", ""])
def test_unknown_and_internal_options_are_refused(name: str) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_UNKNOWN_OPTION"):
        settings_of({name: "1"})


def test_a_near_miss_gets_a_hint() -> None:
    with pytest.raises(StateStoreFilesError, match="Did you mean max_file_size"):
        settings_of({"max_filesize": "1m"})
    with pytest.raises(StateStoreFilesError, match="Did you mean maxFileSize"):
        check_settings({f"{PREFIX}maxFilesize": "1m"})


@pytest.mark.parametrize(
    "key", [*(PREFIX + name for name in REMOVED), *(SINK_PREFIX + name for name in REMOVED_OF_SINKS)]
)
def test_a_removed_option_is_no_error_and_sets_nothing(key: str) -> None:
    check_settings({key: "whatever", f"{PREFIX}maxFileSize": "1m"})
    ((what, to_do),) = what_is_removed(["spark.jars", key, "max_file_size"])
    assert what.startswith(f"{key} is not an option any more and has no effect: ")
    assert to_do == "remove it"


@pytest.mark.parametrize(
    "name", ["buffer_memory", "idle_seal", "read_parallelism", "sink_staging_retention", "verify_checksums"]
)
def test_a_removed_keyword_argument_is_no_error_and_sets_nothing(name: str) -> None:
    assert settings_of({name: None, "max_file_size": "64m"}) == {f"{PREFIX}maxFileSize": "64m"}
    ((what, _),) = what_is_removed([name])
    assert what.startswith(f"{name} is not an option any more")


def test_what_resembles_a_removed_option_is_an_error_that_does_not_offer_it() -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_UNKNOWN_OPTION.*The options are: ") as caught:
        settings_of({"verify_checksumz": "true"})
    with pytest.raises(StateStoreFilesError, match="PSS_UNKNOWN_OPTION.*The options are: ") as whole:
        check_settings({f"{PREFIX}verifyChecksumz": "true"})
    for error in (caught, whole):
        assert not re.search("verify_?checksums", str(error.value), re.IGNORECASE)


def test_settings_of_others_are_left_alone() -> None:
    check_settings({"spark.sql.streaming.stateStore.maintenanceInterval": "whatever", "spark.jars": ""})
