"""No row is lost, doubled or changed by joining files, whatever their sizes, names, codecs and columns are.

Rows are compared with those that were written, by libraries that are neither Spark nor the package.
"""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import pytest

from pyspark_statestore import Sink, StateStoreFilesError
from tests.class_data import MINOR
from tests.conftest import MakeSpark
from tests.sampling import sampled
from tests.sink.handmade import MadeSink, Reader, values
from tests.streaming.runs import session_conf

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]

AT_ONCE = datetime.timedelta(0)


def json_of(size: int, first: int) -> bytes:
    """Lines of 50 bytes but the last, which fills up."""
    lines: list[bytes] = []
    left = size
    while left >= 100:
        line = f'{{"id":{first + len(lines)},"x":"'.encode()
        lines.append(line + b"." * (50 - len(line) - 3) + b'"}\n')
        left -= 50
    line = f'{{"id":{first + len(lines)},"x":"'.encode()
    lines.append(line + b"." * (left - len(line) - 3) + b'"}\n')
    return b"".join(lines)


def test_what_is_planned_is_joined(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Of these three files two are planned; dealt out once more, these two would be one each."""
    spark, sink = make_spark(), MadeSink(tmp_path)
    sizes = (100_673, 50_950, 51_969)
    sink.add([("", ".json", json_of(size, 10_000 * number)) for number, size in enumerate(sizes)])
    before = sink.rows(Reader("json"))

    Sink(tmp_path).compact(target_file_size=101_800, older_than=AT_ONCE, spark=spark)

    assert sink.rows(Reader("json")) == before


def test_files_of_several_codecs(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark, sink, read = make_spark(), MadeSink(tmp_path), Reader("json")
    endings = [".json", ".json.gz", ".json.bz2"] * 4
    sink.add([("", each, read.bytes([{"id": number}], ["id"], each)) for number, each in enumerate(endings)])
    before = sink.rows(read)

    done = Sink(tmp_path).compact(older_than=AT_ONCE, spark=spark)

    assert sink.rows(read) == before
    assert (done.rewritten_data_files_count, done.added_data_files_count) == (12, 3)


@pytest.mark.parametrize("header", [True, False])
def test_csv_of_two_orders_of_columns(make_spark: MakeSpark, tmp_path: Path, header: bool) -> None:
    spark, sink, read = make_spark(), MadeSink(tmp_path), Reader("csv", header)
    orders = [["id", "value"], ["value", "id"]]
    rows = [{"id": number, "value": f"v{number}"} for number in range(8)]
    sink.add([("", ".csv", read.bytes([row], orders[number % 2], ".csv")) for number, row in enumerate(rows)])
    before = sink.rows(read)

    done = Sink(tmp_path).compact(older_than=AT_ONCE, options={"header": str(header)}, spark=spark)

    assert sink.rows(read) == before
    assert done.added_data_files_count == (2 if header else 1)


def test_csv_whose_line_ends_are_not_said(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark, sink = make_spark(), MadeSink(tmp_path)
    paths = sink.add([("", ".csv", f"id|value\x01{number}|x\x01".encode()) for number in range(4)])
    contents = [path.read_bytes() for path in paths]

    done = Sink(tmp_path).compact(older_than=AT_ONCE, options={"header": "true", "sep": "|"}, spark=spark)

    assert done.rewritten_data_files_count == 0
    assert [path.read_bytes() for path in sink.listed()] == contents
    options = {"header": "true", "sep": "|", "lineSep": "\x01"}
    done = Sink(tmp_path).compact(older_than=AT_ONCE, options=options, spark=spark)
    assert [path.read_bytes() for path in sink.listed()] == [b"id|value\x010|x\x011|x\x012|x\x013|x\x01"]
    assert done.rewritten_data_files_count == 4


@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("first", ["same", "other"])
def test_csv_whose_header_is_said_wrongly(make_spark: MakeSpark, tmp_path: Path, said: bool, first: str) -> None:
    spark, sink, read = make_spark(), MadeSink(tmp_path), Reader("csv", not said)
    files = []
    for number in range(6):
        rows = [{"id": 0 if first == "same" else number, "value": "v"}, {"id": number, "value": "v"}]
        files.append(("", ".csv", read.bytes(rows, ["id", "value"], ".csv")))
    sink.add(files)
    before = sink.rows(read)

    Sink(tmp_path).compact(older_than=AT_ONCE, options={"header": str(said)}, spark=spark)

    assert sink.rows(read) == before


def test_csv_with_marks_of_byte_order(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark, sink = make_spark(), MadeSink(tmp_path)
    sink.add([("", ".csv", b"\xef\xbb\xbf" + f"{number},x\n".encode()) for number in range(3)])
    before = [path.read_bytes() for path in sink.listed()]
    done = Sink(tmp_path).compact(older_than=AT_ONCE, options={"header": "false"}, spark=spark)
    assert [path.read_bytes() for path in sink.listed()] == before
    assert done.rewritten_data_files_count == 0


@pytest.mark.parametrize(
    ("format", "ending", "contents", "options"),
    [
        ("json", ".json", [f'{{\n  "id" : {number}\n}}\n' for number in range(3)], {}),
        ("csv", ".csv", [f"{number},x\n".encode("utf-16") for number in range(3)], {"header": "false"}),
        ("text", ".txt", [f"{number} x\n".encode("utf-16-be") for number in range(3)], {}),
        ("csv", ".csv", ['"a\nb",c\n1,2\n3,4\n'] * 3, {"header": "true"}),
        ("csv", ".csv", ['"a,c\n1,2"\n3,4"\n'] * 3, {"header": "true"}),
    ],
    ids=["pretty", "utf-16", "utf-16-be", "header of two lines", "open quote"],
)
def test_texts_that_are_left(
    make_spark: MakeSpark,
    tmp_path: Path,
    format: str,
    ending: str,
    contents: list[str | bytes],
    options: dict[str, str],
) -> None:
    """What cannot be understood from the files alone, and was not said, is not joined."""
    spark, sink = make_spark(), MadeSink(tmp_path)
    files = [content.encode() if isinstance(content, str) else content for content in contents]
    sink.add([("", ending, content) for content in files])

    done = Sink(tmp_path).compact(older_than=AT_ONCE, format=format, options=options, spark=spark)

    assert (done.rewritten_data_files_count, done.failed_data_files_count) == (0, 3)
    assert [path.read_bytes() for path in sink.listed()] == files


@pytest.mark.skipif(MINOR < "4.0", reason="XML came with Spark 4.0")
def test_xml_keeps_its_texts(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark, sink, read = make_spark(), MadeSink(tmp_path), Reader("xml")
    words = ["0023", " 7 ", "true", "1e5", "2024-01-01", ""]
    sink.add(
        [
            ("", ".xml", read.bytes([{"id": number, "word": word}], ["id", "word"], ".xml"))
            for number, word in enumerate(words)
        ]
    )
    before = sink.rows(read)

    done = Sink(tmp_path).compact(older_than=AT_ONCE, spark=spark)

    assert sink.rows(read) == before
    assert done.added_data_files_count == 1


def test_times_of_orc_that_were_written_in_another_zone(make_spark: MakeSpark, tmp_path: Path) -> None:
    """ORC keeps what clocks showed; in another zone they may never have shown that."""
    spark, sink = make_spark(), MadeSink(tmp_path / "sink")
    spark.sql("SELECT timestamp_ntz'2024-03-10 02:30:00' AS at, timestamp'2024-03-10T02:30:00Z' AS moment").repartition(
        1
    ).write.orc(str(tmp_path / "written"))
    (file,) = (tmp_path / "written").glob("*.orc")
    sink.add([("", ".orc", file.read_bytes())] * 3)
    assert spark.sparkContext._jvm is not None
    zones = spark.sparkContext._jvm.java.util.TimeZone
    zone, other = zones.getDefault(), zones.getTimeZone("America/New_York")
    assert not zone.hasSameRules(other)
    zones.setDefault(other)
    try:
        left = Sink(sink.folder).compact(older_than=AT_ONCE, spark=spark)
    finally:
        zones.setDefault(zone)
    assert (left.rewritten_data_files_count, left.failed_data_files_count) == (0, 3)
    assert Sink(sink.folder).compact(older_than=AT_ONCE, spark=spark).rewritten_data_files_count == 3


@pytest.mark.parametrize("ending", [".json.gz", ".snappy.parquet"])
def test_a_large_file_that_is_damaged_is_left(make_spark: MakeSpark, tmp_path: Path, ending: str) -> None:
    """It is read from where it is, and not from memory; its storage is sound all the same."""
    format = "json" if "json" in ending else "parquet"
    spark, sink, read = make_spark(), MadeSink(tmp_path), Reader(format)
    rows = [{"id": number, "word": random.Random(number).randbytes(40).hex()} for number in range(200_000)]
    files = [read.bytes([{"id": -1 - each}], ["id", "word"], ending) for each in range(3)]
    *_, large = sink.add([("", ending, each) for each in (*files, read.bytes(rows, ["id", "word"], ending))])
    content = bytearray(large.read_bytes())
    assert len(content) > 4 << 20
    content[2 << 20 : (2 << 20) + 4000] = bytes(4000)
    large.write_bytes(content)

    done = Sink(tmp_path).compact(older_than=AT_ONCE, spark=spark)

    assert (done.rewritten_data_files_count, done.added_data_files_count) == (3, 1)
    assert done.failed["file_path"].to_pylist() == [f"file://{large}"]
    assert large.read_bytes() == content


@pytest.mark.parametrize("format", ["parquet", "orc"])
@pytest.mark.parametrize("sensitive", ["true", "false"])
def test_names_that_differ_in_case(make_spark: MakeSpark, tmp_path: Path, format: str, sensitive: str) -> None:
    """Some readers take them for two columns, and others for one."""
    spark, sink, read = make_spark(), MadeSink(tmp_path), Reader(format)
    ending = f".{format}"
    sink.add(
        [
            ("", ending, read.bytes([{"id": number, name: f"w{number}"}], ["id", name], ending))
            for number, name in enumerate(["Word", "word", "Word", "word"])
        ]
    )
    before = [path.read_bytes() for path in sink.listed()]
    with session_conf(spark, {"spark.sql.caseSensitive": sensitive}):
        done = Sink(tmp_path).compact(older_than=AT_ONCE, spark=spark)
    assert done.failed_data_files_count == 4
    assert [path.read_bytes() for path in sink.listed()] == before


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_names_of_columns(make_spark: MakeSpark, tmp_path: Path, format: str) -> None:
    spark, sink, read = make_spark(), MadeSink(tmp_path), Reader(format)
    names = ["id", "a.b", "a b", "a`b", "a,b", "ü", "a:b", "<x>", '"q"', "(1)", "SELECT"]
    if format == "orc":
        names.remove("a`b")  # pyarrow reads another name than it wrote
    ending = f".{format}"
    rows = [{name: f"{name}{number}" for name in names} | {"id": number} for number in range(6)]
    sink.add([("", ending, read.bytes([row], names, ending)) for row in rows])
    before = sink.rows(read)

    Sink(tmp_path).compact(older_than=AT_ONCE, spark=spark)

    assert sink.rows(read) == before


def test_the_most_rows_of_a_file_are_not_written_again(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark, sink, read = make_spark(), MadeSink(tmp_path), Reader("parquet")
    ending = ".snappy.parquet"
    rows = [{"id": number} for number in range(35)]
    sink.add([("", ending, read.bytes(rows[at : at + 10], ["id"], ending)) for at in range(0, 35, 10)])
    names = sink.listed()
    done = Sink(tmp_path).compact(older_than=AT_ONCE, options={"maxRecordsPerFile": "10"}, spark=spark)
    assert (done.rewritten_data_files_count, sink.listed()) == (0, names)


class Case:
    """A sink of random files, drawn from a seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = draw = random.Random(seed)
        formats = ["parquet", "orc", "json", "csv", "text", *(["xml"] if MINOR >= "4.0" else [])]
        self.format = draw.choice(formats)
        self.read = Reader(self.format, header=draw.random() < 0.5)
        self.options = {"header": str(self.read.header)} if self.format == "csv" else {}
        self.sink = MadeSink(folder / draw.choice(["t", "a b", "ü=%", "x,y'"]))
        compressions = {
            "parquet": [".snappy", ".gz", ".zstd", ""],
            "orc": [".snappy", ".zlib", ".zstd", ""],
        }
        self.codecs = draw.sample(compressions.get(self.format, ["", ".gz", ".bz2"]), draw.randint(1, 3))
        self.directories = draw.sample(["", "q=1", "q=2/p=b%20c", "q=ü", "q=a b"], draw.randint(1, 3))
        self.number = 0
        more = draw.sample(["word", "Other", "a b", "ü"] if self.format != "xml" else ["word", "other"], 2)
        self.columns = [["value"]] if self.format == "text" else [["id", "value"], ["id", "value", more[0]]]
        if self.format in ("csv", "json", "xml", "orc", "parquet"):
            self.columns += [["id", *more, "value"], ["value", "id", *more]]
        self.kept = self.columns if draw.random() < 0.6 else self.columns[:1]
        self.largest = draw.choice([3, 30, 300])

    def content(self, columns: list[str], ending: str) -> bytes:
        texts = self.format in ("xml",)
        rows = []
        for _ in range(self.random.randint(0 if self.format in ("json", "text") else 1, self.largest)):
            rows.append(values(self.random, self.number, columns, texts))
            self.number += 1
        return self.read.bytes(rows, columns, ending)

    def ending(self) -> str:
        codec = self.random.choice(self.codecs)
        word = {"text": "txt"}.get(self.format, self.format)
        return f"{codec}.{word}" if self.format in ("parquet", "orc") else f".{word}{codec}"

    def add_batches(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            files = []
            for _ in range(self.random.choice([1, 2, 3, 5, 12, 30])):
                ending = self.ending()
                files.append(
                    (self.random.choice(self.directories), ending, self.content(self.random.choice(self.kept), ending))
                )
            self.sink.add(files)

    def target(self) -> int:
        sizes = [path.stat().st_size for path in self.sink.listed()]
        whole = self.random.choice([max(sizes), sum(sizes) / len(sizes) * 2, sum(sizes), 1 << 27])
        return max(1024, int(whole * self.random.uniform(0.3, 1.7)))


EACH = 25
"""So many sinks a seed; `make soak` runs all seeds."""


@pytest.mark.parametrize("seed", sampled(range(10_000 // EACH), 1))
def test_any_sink(make_spark: MakeSpark, tmp_path: Path, seed: int) -> None:
    spark = make_spark()
    for each in range(EACH * seed, EACH * seed + EACH):
        case = Case(each, tmp_path / str(each))
        case.add_batches()
        before = case.sink.rows(case.read)
        for turn in range(2):
            try:
                Sink(case.sink.folder).compact(
                    target_file_size=case.target(),
                    older_than=AT_ONCE,
                    options=case.options,
                    format=case.format,
                    spark=spark,
                )
            except StateStoreFilesError as error:
                assert "could not be understood" in str(error), each
            assert case.sink.rows(case.read) == before, (each, turn, case.format)
            if turn == 0:
                case.add_batches()
                before = case.sink.rows(case.read)
        Sink(case.sink.folder).remove_orphan_files(AT_ONCE, dry_run=False, force=True)
        assert case.sink.rows(case.read) == before, (each, case.format)
        assert Sink(case.sink.folder).verify().is_clean


AVRO = "org.apache.spark.sql.avro.AvroFileFormat"


@pytest.mark.skipif(MINOR < "4.3", reason="before Spark 4.3, Avro's format is in no jar of Spark's own")
def test_columns_of_avro_that_came_later(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Spark asks one file of Avro for the columns of all."""
    spark, sink = make_spark(), MadeSink(tmp_path / "sink")
    columns = [
        ["'a' AS word"],
        ["'b' AS word", "2 AS more"],
        ["struct(3 AS x) AS s"],
        ["struct(3 AS x, 'y' AS y) AS s"],
    ]
    contents = []
    for number, names in enumerate(columns):
        rows = spark.range(number * 10, number * 10 + 5, 1, 1).selectExpr("id", *names)
        rows.write.format(AVRO).save(str(tmp_path / str(number)))
        (file,) = (tmp_path / str(number)).glob("part-*")
        contents.append(file.read_bytes())
    sink.add([("", ".avro", content) for content in contents])
    schema = "id long, word string, more int, s struct<x: int, y: string>"

    def content() -> list[str]:
        files = [str(path) for path in sink.listed()]
        found = spark.read.format(AVRO).schema(schema).load(files)
        return sorted(row[0] for row in found.selectExpr("to_json(struct(*))").collect())

    before = content()

    done = Sink(sink.folder).compact(format=AVRO, older_than=AT_ONCE, spark=spark)

    assert (done.rewritten_data_files_count, done.added_data_files_count) == (4, 1)
    assert content() == before
