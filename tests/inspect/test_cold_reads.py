"""What a first look asks of a file system."""

from pathlib import Path

import pytest

from pyspark_statestore.checkpoint import Checkpoint
from tests.inspect.builders import STAMP, Watch, add_index, merged_file, merged_paths, simple_checkpoint


def test_cold_summary_opens_each_file_once_and_reads_little(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "offsets").mkdir()
    for number in range(10):
        with merged_file(tmp_path, number) as file:
            for i in range(500):
                file.put(f"0/{i % 20}/{number * 25 + i // 20 + 1}.changelog", bytes(2000), stamp=STAMP + i)
    summary = Checkpoint(tmp_path).inspect.summary().to_pylist()[0]
    assert (summary["live_segment_count"], summary["max_version"]) == (5000, 250)
    names = {path.name for path in merged_paths(tmp_path)}
    assert watch.opens == dict.fromkeys(names, 1)
    assert set(watch.bytes_read) == names
    assert max(watch.bytes_read.values()) <= 128 * 1024
    assert min(path.stat().st_size for path in merged_paths(tmp_path)) > 1_000_000
    # The logs of Spark say which version a restart needs.
    assert watch.listings == {"_merged": 1, "offsets": 1, "commits": 1}


@pytest.mark.parametrize("table", ["summary", "segments", "versions"])
def test_an_index_that_speaks_for_all_files_is_all_that_is_opened(tmp_path: Path, watch: Watch, table: str) -> None:
    inspect = Checkpoint(simple_checkpoint(tmp_path / "checkpoint", files=5)).inspect
    before = inspect.table(table).to_pylist()
    index = add_index(tmp_path / "checkpoint")
    watch.opens.clear()
    after = inspect.table(table).to_pylist()
    assert watch.opens == {index.name: 1}
    if table == "summary":
        # The index-only file itself is one.
        size = before[0]["file_size_in_bytes"] + index.stat().st_size
        before[0] |= {"file_count": 6, "file_size_in_bytes": size}
        before[0]["space_amplification"] = size / before[0]["live_bytes"]
    assert after == before
