"""What the names of Spark's state files say, and that nothing is read into other names."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_statestore.log.state_files import Stores, is_state_file, parse_store, store_folder

ID = "0a0c2a92-7b4b-4d5e-9c59-0f0d9a4d3f11"
STORES = {
    "0/0": (0, 0, "default"),
    "12/199": (12, 199, "default"),
    "0/3/left-keyToNumValues": (0, 3, "left-keyToNumValues"),
    "0/3/right-keyWithIndexToValue": (0, 3, "right-keyWithIndexToValue"),
    "999999999/0": (999999999, 0, "default"),
}
NAMES = {
    "1.changelog": (1, None),
    "42.zip": (42, None),
    "42.delta": (42, None),
    "42.snapshot": (42, None),
    "42.snapshot.crc": (42, None),
    f"7_{ID}.changelog": (7, ID),
    f"7_{ID}.zip": (7, ID),
    f"7_{ID}.zip.crc": (7, ID),
    f"SSTs/000008-{ID}.sst": (None, None),
    f"logs/000009-{ID}.log": (None, None),
    "123456789012345678.zip": (123456789012345678, None),
}
NOT_SPARKS = [
    "1.changelog",
    "0/1.changelog",
    "a/0/1.changelog",
    "0/a/1.changelog",
    "0/0/x/y/1.changelog",
    "1234567890/0/1.changelog",
    "-1/0/1.changelog",
    "٣/0/1.changelog",
    "0/_metadata/metadata",
    "0/0/_metadata/schema.zip",
]
NO_VERSION = ["0/0/x.changelog", "0/0/1.txt", "0/0/1.changelog.tmp", "0/0/1_.zip", "0/0/_1.zip", "0/0/1.changelog\n"]


def described(paths: list[str]) -> list[tuple[object, ...]]:
    chunks = [pa.array(paths[:3], pa.string()), pa.array(["skipped", *paths[3:]], pa.string())[1:]]
    stores = Stores.of(pa.chunked_array(chunks, pa.string()))
    rows = np.arange(len(paths))
    columns = [*stores.columns(rows), *stores.versions(rows)]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize("folder", STORES)
@pytest.mark.parametrize("name", NAMES)
def test_names_that_spark_gives(folder: str, name: str) -> None:
    assert described([f"{folder}/{name}"]) == [(*STORES[folder], *NAMES[name])]
    assert parse_store(folder) == STORES[folder]
    assert store_folder(STORES[folder]) == folder
    assert is_state_file(f"{folder}/{name}")


def test_many_at_once_are_those_one_by_one() -> None:
    paths = [f"{folder}/{name}" for folder in STORES for name in NAMES] + NOT_SPARKS + NO_VERSION
    assert described(paths) == [described([path])[0] for path in paths]


@pytest.mark.parametrize("path", NOT_SPARKS)
def test_names_of_others_belong_to_no_store(path: str) -> None:
    assert described([path])[0][:3] == (None, None, None)
    assert not is_state_file(path)


@pytest.mark.parametrize("path", NO_VERSION)
def test_names_without_a_version(path: str) -> None:
    assert described([path])[0][3:] == (None, None)


@pytest.mark.parametrize("path", ["0/0/.1.changelog.crc", "0/0/.1.changelog.0a.TID1.tmp", "0/0/1.txt", "_merged/1.zip"])
def test_what_lies_beside_state_is_none(path: str) -> None:
    assert not is_state_file(path)


@given(st.lists(st.text("ab/ü\U0001f600", max_size=8), max_size=12), st.integers(0, 12))
def test_taking_paths_apart_is_what_python_does(paths: list[str], cut: int) -> None:
    array = pa.array(paths, pa.string())
    stores = Stores.of(pa.chunked_array([array[:cut], array[cut:]], pa.string()))
    assert stores.path.to_pylist() == paths
    assert stores.name.to_pylist() == [path.rpartition("/")[2] for path in paths]


def test_nothing_at_all() -> None:
    stores = Stores.of(pa.chunked_array([], pa.string()))
    assert stores.known == ()
    assert [len(column) for column in stores.columns(np.arange(0))] == [0, 0, 0]
    assert [len(column) for column in stores.versions(np.arange(0))] == [0, 0]
