"""merged_path."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_statestore import Checkpoint, Sink, StateStoreFilesError, merged_path
from pyspark_statestore.paths import SCHEMES


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("hdfs://nn/q1", "merged+hdfs://nn/q1"),
        ("hdfs:/q1", "merged+hdfs:/q1"),
        ("s3a://bucket/a b/q1", "merged+s3a://bucket/a b/q1"),
        ("S3A://bucket/q1", "merged+s3a://bucket/q1"),
        ("file:///tmp/q1", "merged+file:///tmp/q1"),
        ("/tmp/q1", "merged+file:/tmp/q1"),
        (Path("/tmp/q1"), "merged+file:/tmp/q1"),
        ("/tmp/q1 ", "merged+file:/tmp/q1 "),
        ("q1", f"merged+file:{os.getcwd()}/q1"),
        ("./q1/", f"merged+file:{os.getcwd()}/q1"),
        (Path("a b/../q1#%20"), f"merged+file:{os.getcwd()}/q1#%20"),
        ("merged+hdfs://nn/q1", "merged+hdfs://nn/q1"),
        ("merged+alluxio://m/q1", "merged+alluxio://m/q1"),
    ],
)
def test_merged_path(path: str, expected: str) -> None:
    assert merged_path(path) == expected


@pytest.mark.parametrize(
    "path", ["", " ", "hdfs:", "hdfs:q1", "hdfs://", "merged+:/x", "merged+merged+file:/x", "merged+hdfs:"]
)
def test_bad_paths_are_named(path: str) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_BAD_PATH") as caught:
        merged_path(path)

    assert caught.value.getMessageParameters()["path"] == path


RELATIVE = [
    ("file:ck/x", f"file://{os.getcwd()}/ck/x, or ck/x without a scheme"),
    ("merged+file:ck/x", f"file://{os.getcwd()}/ck/x, or ck/x without a scheme"),
    ("file://ck/x", "'ck' is the name of a host there, and a file of this machine has none. Write file:///ck/x for"),
    ("merged+file://ck/x", "'ck' is the name of a host there"),
    ("s3a:bucket/x", "//host/path"),
    ("hdfs:x", "//host/path"),
]


@pytest.mark.parametrize(("path", "how"), RELATIVE)
@pytest.mark.parametrize("ask", [merged_path, Checkpoint, Sink], ids=["merged_path", "Checkpoint", "Sink"])
def test_a_url_that_is_relative_says_how_to_write_it(ask: Callable[[str], object], path: str, how: str) -> None:
    with pytest.raises(StateStoreFilesError) as caught:
        ask(path)

    assert caught.value.getErrorClass() == "PSS_BAD_PATH"
    assert how in str(caught.value)


def test_what_only_looks_like_a_scheme_is_a_name() -> None:
    assert Checkpoint("q1:v2").url == f"file://{os.getcwd()}/q1:v2"
    with pytest.raises(StateStoreFilesError, match=r"merged\+ has to be followed by an absolute path or by a URL"):
        Checkpoint("merged+ck/x")


@pytest.mark.parametrize("path", ["ftp://host/q1", "gcs://bucket/q1", "C:/data/q1"])
def test_unknown_schemes_say_which_are_known_and_what_to_set(path: str) -> None:
    with pytest.raises(StateStoreFilesError, match=r"PSS_UNKNOWN_SCHEME.*spark\.hadoop\.fs\.merged\+"):
        merged_path(path)


@given(st.sampled_from(SCHEMES), st.from_regex(r"/[^/\x00]{1,20}", fullmatch=True))
def test_a_second_call_changes_nothing(scheme: str, rest: str) -> None:
    once = merged_path(f"{scheme}:{rest}")

    assert once == f"merged+{scheme}:{rest}"
    assert merged_path(once) == once
