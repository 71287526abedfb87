"""The tab "State files" in Spark's pages, and what Prometheus reads, beside what is on the disk."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint
from pyspark_statestore.report.advice import LITTLE
from tests.conftest import ROOT, MakeSpark
from tests.copies import remove
from tests.jvm.conftest import jvm
from tests.jvm.harness import until
from tests.streaming.runs import Run, Setting
from tests.streaming.tab import Page, fetch, tab
from tests.streaming.test_metrics import on_disk
from tests.streaming.workloads import write_batches

__all__ = ["jvm"]

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="figures of queries")]

MONITORING = ROOT / "docs" / "monitoring"
SERVLET = "spark.metrics.conf.driver.sink.prometheusServlet."
CONF = {
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.metrics.namespace": "my_query",
    f"{SERVLET}class": "org.apache.spark.metrics.sink.PrometheusServlet",
    f"{SERVLET}path": "/metrics/prometheus",
    "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
}
HOSTILE = "a<script>alert('x')&\"b"
COLUMNS = {
    "Logical files": "logicalFileCount",
    "Live bytes": "logicalFileSize",
    "Merged files": "physicalFileCount",
    "Bytes on disk": "physicalFileSize",
    "Amplification": "spaceAmplification",
}


@pytest.fixture
def session(make_spark: MakeSpark) -> SparkSession:
    """A session with pages, which Prometheus can read."""
    return make_spark(CONF, mode="provider")


def query(spark: SparkSession, folder: Path, batches: int = 2) -> Run:
    """A query with merged state that has ended."""
    run = Run(spark, "aggregation", Setting("provider", "rocksdb"), folder)
    write_batches(run.input, range(batches))
    run.run()
    return run


def shown(figures: dict[str, tuple[str, str]]) -> dict[str, float]:
    """The figures of a checkpoint on the page, by the names of the metrics."""
    return {metric: float(figures[column][1]) for column, metric in COLUMNS.items()}


def agrees(figures: dict[str, tuple[str, str]] | None, run: Run) -> bool:
    """Whether the page shows what is on the disk, which maintenance may be changing."""
    return bool(figures) and shown(figures) == pytest.approx(on_disk(run.checkpoint / "state"), abs=1e-6)  # type: ignore[arg-type]


def of(page: Page, run: Run) -> dict[str, tuple[str, str]] | None:
    """The line of a query's checkpoint, by its location."""
    found = [figures for location, figures in page.figures().items() if location == f"file:{run.checkpoint}"]
    return found[0] if found else None


@pytest.mark.each_spark
def test_the_tab_shows_what_is_on_the_disk(session: SparkSession, tmp_path: Path) -> None:
    assert '<a class="nav-link" href="/state-files/">State files</a>' in re.sub(r"\s+", " ", fetch(session, "/jobs/"))
    run = query(session, tmp_path / "one")
    hostile = query(session, tmp_path / HOSTILE)

    page = until(
        lambda: (now := tab(session)) and agrees(of(now, run), run) and agrees(of(now, hostile), hostile) and now,
        "the page to show what is on the disk",
    )

    figures = of(page, run)
    assert figures is not None
    summary = Checkpoint(run.checkpoint).inspect.summary().to_pylist()[0]
    assert float(figures["Logical files"][1]) == summary["live_segment_count"]
    assert float(figures["Amplification"][1]) == pytest.approx(summary["space_amplification"], abs=1e-6)
    assert figures["Amplification"][0] == f"{summary['space_amplification']:.2f}"
    assert 0 < float(figures["Mean flush"][1]) <= float(figures["Mean commit"][1])
    assert figures["Failed groups"] == ("0", "0")
    assert figures["Index service"][0] == "on"
    assert "<script>alert" not in page.text

    def counted() -> bool:
        groups = sum(float(line["Groups"][1]) for line in tab(session).figures().values())
        values = prometheus(session)
        counts = {
            values[f"pyspark_statestore_{name}"] for name in ("groupCommits_Count", "application_groupCommits_Value")
        }
        return counts == {groups}

    until(counted, "the tab and both metrics to agree")


def test_the_page_of_one_checkpoint(session: SparkSession, jvm: Any, tmp_path: Path) -> None:
    first, other = query(session, tmp_path / "first"), query(session, tmp_path / "other", batches=1)
    page = until(lambda: (now := tab(session)) and of(now, first) and of(now, other) and now, "both lines")
    number = re.findall(rf'href="\?checkpoint=(\d+)#checkpoint">file:{re.escape(str(first.checkpoint))}<', page.text)[0]
    write_batches(first.input, range(3))
    first.run()  # a batch more, so that there is a history
    state = jvm.org.apache.hadoop.fs.Path(f"file:{first.checkpoint}/state")
    jvm.io.pyspark.statestore.log.MergedLogs.open(state).clean()

    def complete() -> dict[str, tuple[str, str]] | None:
        now = tab(session, f"?checkpoint={number}")
        one = now.of_one()
        return one if now.drawings == 4 and agrees(one, first) and "took" in one["Last maintenance"][0] else None

    one = until(complete, "the page to show the third batch, its drawings and a maintenance")
    assert float(one["Bytes written"][1]) >= float(one["Live bytes"][1])

    page = tab(session, f"?checkpoint={number}")
    assert [level for level, _, _ in page.health] == ["good"]
    (link,) = [link for link in page.links if "statistics" in link]
    text = fetch(session, urllib.parse.urljoin("/state-files/", link))
    assert "Streaming Query Statistics" in text
    assert link.rpartition("=")[2] in text


def test_a_checkpoint_stays_on_the_page_when_its_query_is_gone(session: SparkSession, jvm: Any, tmp_path: Path) -> None:
    run = query(session, tmp_path)
    before = until(lambda: (now := of(tab(session), run)) and agrees(now, run) and now, "the line of the checkpoint")
    jvm.io.pyspark.statestore.log.MergedLogs.forgetBelow(jvm.org.apache.hadoop.fs.Path(f"file:{run.checkpoint}/state"))
    remove(run.checkpoint)
    other = query(session, tmp_path / "other", batches=1)
    page = until(lambda: (now := tab(session)) and of(now, other) and now, "the page to have gone on")
    after = of(page, run)
    assert after is not None
    assert shown(after) == shown(before)


@pytest.mark.parametrize("chosen", ["0", "-1", "<script>alert(1)</script>", "1' or '1'='1", "x" * 2000])
def test_a_request_with_anything_in_it(session: SparkSession, chosen: str) -> None:
    page = tab(session, f"?checkpoint={urllib.parse.quote(chosen)}")
    assert "State files" in page.text
    assert "alert(1)" not in page.text


def test_hundreds_of_checkpoints_for_months(session: SparkSession, jvm: Any) -> None:
    pages = jvm.io.pyspark.statestore.tab.TabPages
    many = Page(pages.pageOfMany(600, 2, "s3a://KEY:SECRET@bucket/c", "7"))
    assert len(many.figures()) == 500
    assert "the 500 that changed last" in many.text
    assert len(many.text) < 2_000_000
    assert "SECRET" not in many.text
    assert "s3a://***@bucket/c600" in many.figures()
    long = Page(pages.pageOfMany(1, 100_000, "abfss://container@account/c", None))
    assert long.drawings == 4
    assert 120 <= max(line.count(",") for line in re.findall(r'points="([^"]*)"', long.text)) / 2 <= 250
    assert "abfss://container@account/c1" in long.text
    assert "1666 h ago" in long.text, "the history begins with the application"


MINUTE, SECOND = 60_000, 1000
GROUPS = {
    "size": ["Logical files", "Live bytes", "Merged files", "Bytes on disk", "Amplification"],
    "writing": [
        "Commits",
        "Groups",
        "Commits per group",
        "Bytes written",
        "Mean flush",
        "Mean commit",
        "Failed groups",
    ],
    "reading": ["Keys asked ahead", "Waits saved", "Rows moved to the disk", "Reads of moved rows"],
    "maintenance": ["Last maintenance", "Bytes moved", "Files deleted", "Failed deletes"],
    "processes": ["Index service", "Last change"],
}
RUN = uuid.UUID("675fc7ce-35c1-4941-a318-2dd525b0d9ae")
LIVE = {"FILES": 3, "LIVE_FILES": 40, "LIVE_BYTES": 4 << 20, "MAX_AMPLIFICATION": 200, "CLOSED_AFTER_MS": 10 * MINUTE}
"""What the driver tells of a checkpoint."""


def halves(run: uuid.UUID) -> dict[str, int]:
    """A run's id as processes tell it: two signed numbers."""
    first, last = (int.from_bytes(run.bytes[at : at + 8], "big", signed=True) for at in (0, 8))
    return {"RUN_ID_FIRST": first, "RUN_ID_LAST": last}


def told(jvm: Any, *figures: tuple[int, dict[str, int]], location: str = "file:/c") -> Any:
    """A history to make pages of: at each time, what is told besides ``LIVE``."""
    pages = jvm.io.pyspark.statestore.tab.TabPages()
    for at, each in figures:
        pages.tell(location, at, LIVE | each)
    return pages


@pytest.mark.parametrize(
    ("now", "figures", "level", "words", "figure"),
    [
        (1, {"PHYSICAL_BYTES": 5 << 20}, "good", "good Nothing has failed in the last 15 min", None),
        (5, {"FAILED_GROUPS": 3}, "look", "writes fail 3 failed since the application began, the last 4 min ago.", 1),
        (17, {"FAILED_GROUPS": 3}, "good", "good", None),
        (5, {"FAILED_DELETES": 2}, "look", "deletes fail 2 failed since the application began, the last 4 min ago.", 3),
        (5, {"PASS_STOPPED": 1, "FAILED_DELETES": 2}, "act", "maintenance stopped The last cleaning pass stopped", 0),
        (9, {"PHYSICAL_BYTES": 9 << 20}, "good", "good", None),
        (13, {"PHYSICAL_BYTES": 9 << 20}, "look", "dead bytes stay For 12 min, more than 2.00 bytes are kept", 2),
        (13, {"PHYSICAL_BYTES": 8 << 20}, "good", "good", None),
        (13, {"PHYSICAL_BYTES": 9 << 10, "LIVE_BYTES": 1 << 10}, "good", "good", None),
        (13, {"PHYSICAL_BYTES": 9 << 20, "MAX_AMPLIFICATION": 300}, "good", "good", None),
        (3, {"GROUPS": 10, "WRITE_NANOS": 25_000_000_000}, "look", "flushes are slow A group took 2.5 s", 4),
        (3, {"GROUPS": 10, "WRITE_NANOS": 15_000_000_000}, "good", "good", None),
        (5, {"HEAP_SPILL_READS": 7}, "look", "state is larger than the heap Rows of heap stores were read on the", 5),
        (17, {"HEAP_SPILL_READS": 7}, "good", "good", None),
    ],
)
def test_health_is_said_before_the_figures(
    jvm: Any, now: int, figures: dict[str, int], level: str, words: str, figure: int | None
) -> None:
    pages = told(jvm, (0, {}), (1 * MINUTE, figures))
    page = Page(pages.page(now * MINUTE, None, True))

    found, said, leads_to = page.health[0]
    assert (found, said[: len(words)]) == (level, words)
    names = [
        "last-maintenance",
        "failed-groups",
        "amplification",
        "failed-deletes",
        "mean-flush",
        "reads-of-moved-rows",
    ]
    assert leads_to == ([] if figure is None else [f"figure-{names[figure]}"])
    assert set(leads_to) <= page.ids
    assert page.text.index("sf-health") < page.text.index("state-files-of-one")

    pages.tell("file:/other", now * MINUTE, LIVE)
    overview = Page(pages.page(now * MINUTE, None, True)).figures()
    assert overview["file:/other"]["Health"] == ("good", "0")
    shown, key = overview["file:/c"]["Health"]
    assert words.startswith(shown.partition(" +")[0])
    assert key == {"good": "0", "look": "1", "act": "2"}[level]


def test_what_is_dead_again_after_it_was_not(jvm: Any) -> None:
    """Only since the query keeps too much without a break it says so."""
    much, little = {"PHYSICAL_BYTES": 20 << 20}, {"PHYSICAL_BYTES": 5 << 20}
    pages = told(jvm, (0, much), (11 * MINUTE, little), (12 * MINUTE, much))
    assert Page(pages.page(20 * MINUTE, None, True)).health[0][0] == "good"
    assert Page(pages.page(23 * MINUTE, None, True)).health[0][1].startswith("dead bytes stay For 11 min")


def test_little_is_what_reports_call_little(jvm: Any) -> None:
    assert jvm.io.pyspark.statestore.tab.TabPages.little() == LITTLE


def test_figures_are_in_groups_and_say_what_they_mean(jvm: Any) -> None:
    page = Page(told(jvm, (0, {})).page(MINUTE, None, True))
    assert {group: list(figures) for group, figures in page.groups().items()} == GROUPS
    many = told(jvm, (0, {}))
    many.tell("file:/d", 0, LIVE)
    text = many.page(MINUTE, None, True)
    assert re.findall(r'<th class="sf-first" data-group="(\w+)"', text) == [
        "Size",
        "Writing",
        "Maintenance",
        "Processes",
    ]


def test_charts_have_scales(jvm: Any) -> None:
    flush = {"GROUPS": 4, "WRITE_NANOS": 90_000_000}
    pages = told(jvm, *((at * SECOND, {"FILES": at, "PHYSICAL_BYTES": at << 20} | flush) for at in range(4, 20)))
    page = Page(pages.page(20 * SECOND, None, True))
    size, files, flushes = page.scales
    assert size == ["0 B", "12 MiB", "24 MiB", "16 s ago", "now"]
    assert files == ["0", "10", "20", "16 s ago", "now"]
    assert flushes == ["0 ms", "15 ms", "30 ms", "15 s ago", "now"]
    assert page.drawings == 4
    lines = re.findall(r'<polyline class="([^"]*)"', page.text)
    assert len(set(lines)) == 4, "each line has a colour of its own"
    drawn = [point.split(",") for line in re.findall(r'points="([^"]*)"', page.text) for point in line.split()]
    assert all(74 <= float(x) <= 552 and 12 <= float(y) <= 124 for x, y in drawn)


def test_a_page_leads_on(jvm: Any) -> None:
    hostile = "file:/it's <b>&\"here"
    pages = told(jvm, (0, halves(RUN)), location=hostile)
    page = Page(pages.page(MINUTE, None, True))
    assert page.links == [f"../StreamingQuery/statistics/?id={RUN}"]
    command = html.unescape(re.findall(r"<code[^>]*>([^<]*)</code>", page.text)[0])
    assert shlex.split(command) == ["pyspark-statestore", "report", hostile, "-o", "report.html"]
    assert Page(pages.page(MINUTE, None, False)).links == [], "Spark has no such page"
    pages.tell("s3a://KEY:SECRET@bucket/c", 0, LIVE)
    page = Page(pages.page(MINUTE, "2", True))
    assert page.links == ["?checkpoint=1#checkpoint", "?checkpoint=2#checkpoint", "?"]
    assert "checkpoint" in page.ids
    assert "pyspark-statestore report" not in page.text, "a command without its password is none"
    assert "SECRET" not in page.text


def test_without_pages_nothing_is_told(make_spark: MakeSpark, jvm: Any, tmp_path: Path) -> None:
    def tells() -> bool:
        threads = jvm.java.lang.Thread.getAllStackTraces().keySet()
        return any(str(thread.getName()).startswith("state-files-figures") for thread in threads)

    make_spark(CONF, mode="provider")
    assert tells()
    spark = make_spark(mode="provider")
    query(spark, tmp_path)
    until(lambda: not tells(), "the thread of the session before to end")


# ---- what Prometheus reads


def relabelled(text: str) -> dict[str, tuple[dict[str, str], float]]:
    """Metrics in Prometheus' text format, by the names and labels that the configuration in the docs gives them."""
    (job,) = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    found = {}
    for line in text.splitlines():
        matched = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^}]*\})? (\S+)", line)
        assert matched, f"{line!r} is no line of Prometheus' text format"
        labels = {"__name__": matched[1]}
        for rule in job["metric_relabel_configs"]:
            value = ";".join(labels.get(label, "") for label in rule["source_labels"])
            if match := re.fullmatch(rule["regex"], value):
                if rule.get("action") == "drop":
                    break
                labels[rule["target_label"]] = match.expand(rule["replacement"].replace("$", "\\"))
        else:
            name = labels.pop("__name__")
            assert name not in found, f"{name} twice"
            found[name] = (labels, float(matched[2]))
    return found


def prometheus(spark: SparkSession) -> dict[str, float]:
    """The values of this package's metrics, by name."""
    found = relabelled(fetch(spark, "/metrics/prometheus/"))
    ours = {name: value for name, value in found.items() if name.startswith("pyspark_statestore_")}
    assert all(labels == {"application": "my_query", "process": "driver"} for labels, _ in ours.values())
    return {name: value for name, (_, value) in ours.items()}


def referred(text: str) -> set[str]:
    """The metrics that a text refers to."""
    return set(re.findall(r"\bpyspark_statestore_\w+", text))


@pytest.mark.parametrize("file", ["alerts.yml", "dashboard.json"])
def test_each_metric_that_is_referred_to_is_there(session: SparkSession, tmp_path: Path, file: str) -> None:
    query(session, tmp_path)
    names = referred((MONITORING / file).read_text(encoding="utf-8"))
    assert len(names) > 10
    assert sorted(names - prometheus(session).keys()) == []


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def server(spark: SparkSession, folder: Path) -> Iterator[str]:
    """A Prometheus with the configuration of the docs, which reads a session's metrics each second; its address."""
    url = urllib.parse.urlsplit(str(spark.sparkContext.uiWebUrl))
    text = (MONITORING / "prometheus.yml").read_text(encoding="utf-8")
    text = text.replace("localhost:4040", url.netloc).replace("scrape_interval: 15s", "scrape_interval: 1s")
    (folder / "prometheus.yml").write_text(text, encoding="utf-8")
    shutil.copy(MONITORING / "alerts.yml", folder)
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=log, stdout=log)
        try:
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(60)


def ask(address: str, path: str, **arguments: str) -> Any:
    """An answer of Prometheus; None as long as it does not answer."""
    try:
        with urllib.request.urlopen(
            f"{address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}", timeout=30
        ) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus: apt-get install prometheus")
def test_a_prometheus_takes_configuration_alerts_and_dashboard(session: SparkSession, tmp_path: Path) -> None:
    query(session, tmp_path / "query")
    with server(session, tmp_path) as address:
        wanted = {"query": "count(count_over_time(pyspark_statestore_commits_Count[1m]) > 3)"}
        until(lambda: (ask(address, "query", **wanted) or {}).get("result"), "four scrapes", 120)
        (group,) = until(lambda: (ask(address, "rules") or {}).get("groups"), "the rules", 60)
        assert len(group["rules"]) == len(yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"])
        until(
            lambda: all(r["health"] == "ok" for r in ask(address, "rules")["groups"][0]["rules"]),
            "the rules to run",
            120,
        )
        empty = []
        panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
        for expression in (target["expr"] for panel in panels for target in panel["targets"]):
            filled = expression.replace("$application", ".*").replace("$__rate_interval", "1m")
            if not ask(address, "query", query=filled)["result"]:
                empty.append(expression)
        assert empty == []
