"""What a first look asks of a file system."""

from pathlib import Path

from pyspark_statestore.checkpoint import Checkpoint
from tests.inspect.places import STAMP, Watch, merged_file, merged_paths


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
    assert sum(watch.listings.values()) == 1
