"""Nexmark on Structured Streaming: ten queries on stock Spark and on merged state, side by side.

python benchmarks/nexmark.py --quick                      # 3 to 4 minutes: all queries give the same, and first figures
python benchmarks/nexmark.py --place local --query q4     # one query on one file system
python benchmarks/nexmark.py --publish                    # everything, into docs/nexmark.md; hours, on a quiet machine
python benchmarks/nexmark.py --publish --place local      # a part of it; what else is published stays
python benchmarks/nexmark.py --publish --place hdfs --query q4
python benchmarks/nexmark.py --publish --raw A.json --raw B.json    # what was run before, in parts
python benchmarks/nexmark.py --check                      # is a tenth lost since the published run? `make bench-check`

First, each query runs with all sides in turn, and has to give out the same rows in each batch, and what a batch
computation in SQL says. Then it is measured at each place; there the sums of the rows' hashes are compared in each
batch. Then everything is killed, and each side starts again in a process of its own, without what its host has kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console
from rich.markdown import Markdown

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import nexmark_figures as results  # noqa: E402
from benchmarks.nexmark_events import Shape  # noqa: E402
from benchmarks.nexmark_places import PLACES, PlaceUnavailable  # noqa: E402
from benchmarks.nexmark_process import UNAVAILABLE, same_measured  # noqa: E402
from benchmarks.nexmark_queries import QUERIES  # noqa: E402
from benchmarks.nexmark_sides import KINDS, OF_PLACE, USUAL  # noqa: E402
from benchmarks.report import put_into_page  # noqa: E402
from benchmarks.scenario import DOORS, Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.sides import BenchmarkError, commit, git  # noqa: E402

PUBLISHED = ROOT / "benchmarks" / "published" / "nexmark.json"
PAGE = ROOT / "docs" / "nexmark.md"
PICTURE = ROOT / "docs" / "pictures" / "nexmark.svg"

SHAPES: dict[str, dict[str, Any]] = {
    # S3's stock side takes a minute a batch with more. Six batches in turn take a minute.
    "s3": {"partitions": 4, "maintenance": "60s"},
    # Where nothing waits, sides differ by less than medians of ten batches do from ten to ten.
    "local": {"batches": 46},
}
"""What differs from the options for a place, unless the command line says it."""
MAINTENANCE = "10s"
"""Snapshots are uploaded within some batches, and so among those that figures are of. More often would not be fair:
each time, stock Spark's heap store lists the files of each store."""
SHAPE = Shape(results.FIRST + results.PERIOD, 10_000, 10, 20130101, warm_up=30)
SCENARIO = Scenario(workload="nexmark", partitions=16, maintenance_interval=MAINTENANCE)
"""How queries run where neither `SHAPES` nor the command line says it."""
PUBLISHED_MAINTENANCE = "10s"
"""Of a published run that does not say it."""
QUICK = {"partitions": 2, "batches": 4, "events": 2_500, "seconds": 7}
"""Also of the check that rows are the same, which comes before all measurements. Windows of ten seconds begin in one
batch and end in another: what q8 gives out depends on its state only then."""
COMPARED = ("stock", "merged", "remote", "heap-merged")
"""The sides of that check: both stores of stock Spark give out the same."""
MORE_COMPARED = ("batch-scope",)
"""Those that --quick leaves out."""
PART_SECONDS = 4 * 3600
"""The longest part takes an hour on a slow machine: what takes longer hangs."""
OF_MEASUREMENTS = frozenset(
    {"places", "partitions", "batches", "events", "seconds", "following", "warm_up", "restart", "equality"}
)
"""The options that --quick does not know."""
OF_PUBLISHED = frozenset(
    {"partitions", "batches", "events", "seconds", "seed", "warm_up", "door", "changelog", "quick", "sides"}
)
"""Those that --check does not know: the published run says them."""
VERSIONS = ("spark", "java", "cpus")
"""What of an environment figures depend on."""
BUILT_FROM = (
    "pyspark_statestore",
    "jvm-shim",
    "benchmarks/*.py",
    "benchmarks/local_hdfs",
    "tests/s3",
    "tests/streaming/runs.py",
)
"""What published figures depend on, and so is not to differ from the commit that they name."""


def run_part(part: str, scenario: Scenario, shape: Shape, **values: Any) -> dict[str, Any]:
    """Runs a part in a process and JVM of its own.

    Args:
        part: "equal" or "measure".
        scenario: Partitions and so on.
        shape: Of the events.
        **values: What else the part needs; see nexmark_process.py.

    Returns:
        The part's raw numbers.

    Raises:
        PlaceUnavailable: The place cannot be had here. The reason is on stderr.
        click.ClickException: It fails. The reason is on stderr.
    """
    # Everything that the process and its servers write is in here, so that nothing of it stays, however they end.
    with tempfile.TemporaryDirectory(prefix="nexmark-", ignore_cleanup_errors=True) as directory:
        order, answer = Path(directory) / "in.json", Path(directory) / "out.json"
        order.write_text(json.dumps({"part": part, "scenario": scenario.to_json(), "shape": asdict(shape), **values}))
        command = [sys.executable, "-W", "ignore::FutureWarning", "-m", "benchmarks.nexmark_process"]
        # An interrupt is for this process, which ends the other one.
        environment = os.environ | {"TMPDIR": directory}
        process = subprocess.Popen(
            [*command, str(order), str(answer)], cwd=ROOT, env=environment, start_new_session=True
        )
        try:
            code = process.wait(PART_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise click.ClickException(f"{part} was not over after {PART_SECONDS} s, and was ended") from error
        finally:
            _end_all(process)
        what = " ".join(str(values[name]) for name in ("query", "place") if name in values) or "the check for equality"
        if code == UNAVAILABLE:
            raise PlaceUnavailable(f"{what} cannot run here; the reason is above")
        if code or not answer.exists():
            raise click.ClickException(f"{what} failed; the reason is above")
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """Kills a process that leads its group, and all that it has started, such as servers that have outlived it."""
    if process.poll() is None:
        for each in [*psutil.Process(process.pid).children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def compare_all(
    queries: list[str], sides: tuple[str, ...], all_states: bool, scenario: Scenario, shape: Shape
) -> list[dict[str, Any]]:
    """Compares all rows of queries, and their state, in a small run.

    Args:
        queries: Their names.
        sides: The sides.
        all_states: Whether to compare the state of queries that append, too.
        scenario: Door and changelogs; it has fewer partitions here.
        shape: The seed; there are fewer events here.

    Returns:
        What that run's raw numbers are, as those of `measure_all`.

    Raises:
        click.ClickException: Something differs. The reason is on stderr.
    """
    scenario = dataclasses.replace(scenario, partitions=QUICK["partitions"])
    shape = dataclasses.replace(shape, **{name: QUICK[name] for name in ("batches", "events", "seconds")}, warm_up=0)
    compared = run_part("equal", scenario, shape, queries=queries, sides=[*sides], all_states=all_states)
    about = {"environment": compared["environment"], "shape": asdict(shape), "scenario": scenario.to_json()}
    found = compared["queries"].items()
    return [{**about, "query": name, "place": "local", "sides": each["sides"]} for name, each in found]


def measure_all(
    queries: list[str],
    places: list[str],
    sides: tuple[str, ...],
    shapes: dict[str, tuple[Scenario, Shape]],
    following: int,
    begin: Begin,
    save: Any,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Measures queries at places, one after the other.

    Args:
        queries: Their names.
        places: Their names.
        sides: Empty for the usual ones of each place.
        shapes: By place.
        following: Batches after a restart; -1 for no restart.
        begin: What the run began with.
        save: Called with the raw numbers so far after each.

    Returns:
        The raw numbers, and a sentence for each that failed.
    """
    raw: list[dict[str, Any]] = []
    failed = []
    for place in places:
        scenario, shape = shapes[place]
        for query in queries:
            print(f"{query} at {PLACES[place]}, {scenario.partitions} partitions", file=sys.stderr)
            chosen = [*(sides or _through(scenario.door, OF_PLACE.get(place, USUAL)))]
            try:
                values = {"query": query, "place": place, "sides": chosen, "following": following}
                found = run_part("measure", scenario, shape, **values)
            except PlaceUnavailable as error:
                failed.append(f"{error}; nothing was measured there")
                break
            except click.ClickException as error:
                failed.append(error.message)
                print(f"FAILED: {error.message}", file=sys.stderr)
                continue
            about = {"shape": asdict(shape), "scenario": scenario.to_json(), "compared": begin.compared}
            raw.append({**found, **about, "differs": differences(begin)})
            save(raw)
    return raw, failed


def figures_of(raw: list[dict[str, Any]]) -> results.Figures:
    """Computes all figures of raw numbers."""
    found: results.Figures = {}
    for each in raw:
        sides = {name: results.side_figures(side, each["shape"]["events"]) for name, side in each["sides"].items()}
        found.setdefault(each["place"], {})[each["query"]] = sides
    return found


def check_again(published: results.Figures, found: results.Figures, measure: Any) -> list[results.Regression]:
    """Finds what is worse than in the published run. What looks worse is measured once more: only twice counts.

    Args:
        published: The figures of the published run.
        found: The figures of this run. Those that are measured again are replaced.
        measure: Measures a query at a place, and returns the raw numbers.

    Returns:
        What is worse, twice.
    """
    first = {each.what for each in results.regressions(published, found)}
    for place, query in sorted({(place, query) for place, query, *_ in first}):
        print(f"{query} at {place} looks worse, and is measured again", file=sys.stderr)
        found[place] |= figures_of(measure(place, query)).get(place, {})
    return [each for each in results.regressions(published, found) if each.what in first]


def publish(raw: list[dict[str, Any]]) -> None:
    """Writes figures beside the benchmark, and summary and picture into the page.

    Other places keep what they have, and so do other queries of a place.

    Args:
        raw: The raw numbers of some queries at some places.

    Raises:
        click.ClickException: A query was run from files that differ from the commit, its sides gave out other rows, it
            is there twice, or other queries of a place were run in another way, or with other versions. Nothing is
            published then; the raw numbers stay where they are.
    """
    for each in raw:
        run = f"{each['query']} at {each['place']}"
        refuse_changes(each.get("differs", "nobody knows which"), run)
        if not each.get("compared"):
            raise click.UsageError(f"not published: rows of {run} were not all compared; run it without --no-equality")
        if not each["environment"].get("commit"):
            raise click.UsageError(f"figures are published of a commit, and that of {run} is not known")
        try:
            same_measured(run, each["sides"], each["shape"]["batches"])
        except BenchmarkError as error:
            raise click.ClickException(f"not published: {error}") from error
    if twice := [
        " at ".join(run) for run, count in Counter((o["query"], o["place"]) for o in raw).items() if count > 1
    ]:
        raise click.UsageError(f"not published: {', '.join(twice)} is there more than once")
    kept: dict[str, Any] = json.loads(PUBLISHED.read_text()) if PUBLISHED.exists() else {}
    for place, queries in figures_of(raw).items():
        abouts = {each["query"]: _about(each) for each in raw if each["place"] == place}
        now = [*abouts.values()][-1]
        before = kept.get(place, {})
        if not before or not set(before["figures"]) - set(queries):
            before = {"figures": {}}
        for other in [*abouts.values(), *([before] if before["figures"] else [])]:
            if _said_of(other) != _said_of(now):
                raise click.ClickException(
                    f"not published: {place} has other queries of a run with {_said_of(other)}, and this one has "
                    f"{_said_of(now)}. Publish all of them: --publish --place {place}"
                )
        all_queries = {**before["figures"], **queries}
        runs = before.get("runs") or {name: _build(before) for name in before["figures"]}
        runs = {**runs, **{name: _build(about) for name, about in abouts.items()}}
        kept[place] = {
            **now,
            "runs": {name: runs[name] for name in QUERIES if name in runs},
            "figures": {name: all_queries[name] for name in QUERIES if name in all_queries},
        }
    kept = {place: kept[place] for place in PLACES if place in kept}
    found = published_figures(kept)
    said = ["Each cell: median batch ÷ stock's; calls for state in a batch ÷ stock's.", "", *results.summary(found)]
    said += ["", "![Median batches beside stock's, and calls for state, by query](pictures/nexmark.svg)", ""]
    for place, each in kept.items():
        shape, about = Shape(**each["shape"]), each["environment"]
        maintenance = each.get("maintenance_interval", PUBLISHED_MAINTENANCE)
        after = f" after {shape.warm_up} smaller ones to warm up" if shape.warm_up else ""
        said += [
            f"* `{place}` is {PLACES[place]}: {each['partitions']} partitions, {shape.batches} batches of "
            f"{shape.events:,} events{after}, maintenance every {maintenance}; Spark {about['spark']}, "
            f"Java {about['java']}, {about['cpus']} cores"
        ]
        if commits := sorted({(run or about).get("commit") or "" for run in each.get("runs", {"": about}).values()}):
            said[-1] += f"; commit {', '.join(commit[:8] for commit in commits)}"
        said[-1] += "."
        if missing := [name for name in QUERIES if name not in each["figures"]]:
            said[-1] += f" Not run there yet: {', '.join(missing)}."
    # This comes first: it refuses a page that has no place for it.
    put_into_page(PAGE, "nexmark", ["", *said, ""])
    PUBLISHED.parent.mkdir(exist_ok=True)
    PUBLISHED.write_text(json.dumps(kept, indent=1) + "\n")
    head = ["# Nexmark, all figures", "", "Each cell is stock → merged (their ratio).", ""]
    PUBLISHED.with_suffix(".md").write_text("\n".join([*head, *results.tables(found)]) + "\n", encoding="utf-8")
    results.draw(found, PICTURE)


def _about(raw: dict[str, Any]) -> dict[str, Any]:
    """How a query was run at a place, as it is published."""
    scenario = raw["scenario"]
    return {
        "environment": raw["environment"],
        "shape": raw["shape"],
        "partitions": scenario["partitions"],
        "maintenance_interval": scenario["maintenance_interval"],
    }


def _is_usual(raw: dict[str, Any]) -> bool:
    """Whether a query was run as `--publish` runs it."""
    place, sides = raw["place"], raw["sides"]
    scenario, shape = shapes_at([place], SHAPE, SCENARIO, set())[place]
    return (
        place in PLACES
        and raw["query"] in QUERIES
        and raw["shape"] == asdict(shape)
        and Scenario.from_json(raw["scenario"]) == scenario
        and {*sides} == {*OF_PLACE.get(place, USUAL)}
        and all("restart" in side for side in sides.values())
    )


def _build(run: dict[str, Any]) -> dict[str, Any]:
    """What was run."""
    return {name: run["environment"].get(name) for name in ("commit", "spark", "java", "hadoop", "platform")}


def _said_of(run: dict[str, Any]) -> list[Any]:
    """What has to be the same of all queries of a place."""
    maintenance = run.get("maintenance_interval", PUBLISHED_MAINTENANCE)
    return [
        asdict(Shape(**run["shape"])),
        run["partitions"],
        maintenance,
        *(run["environment"][name] for name in VERSIONS),
    ]


def published_figures(kept: dict[str, Any]) -> results.Figures:
    """The figures of the published runs, by place."""
    return {place: each["figures"] for place, each in kept.items()}


def of_published(shape: dict[str, Any]) -> tuple[Scenario, Shape]:
    """The partitions and events of a place in the published run: only what has the same shape can be compared."""
    maintenance = shape.get("maintenance_interval", PUBLISHED_MAINTENANCE)
    scenario = Scenario(workload="nexmark", partitions=shape["partitions"], maintenance_interval=maintenance)
    return scenario, Shape(**shape["shape"])


def shapes_at(places: list[str], shape: Shape, scenario: Scenario, said: set[str]) -> dict[str, tuple[Scenario, Shape]]:
    """The partitions, events and maintenance of each place.

    Args:
        places: Their names.
        shape: Of the command line.
        scenario: Of the command line.
        said: The options that the command line has: they win over `SHAPES`.
    """
    found = {}
    for place in places:
        own = {option: value for option, value in SHAPES.get(place, {}).items() if option not in said}
        found[place] = (
            dataclasses.replace(
                scenario,
                partitions=own.get("partitions", scenario.partitions),
                maintenance_interval=own.get("maintenance", scenario.maintenance_interval),
            ),
            dataclasses.replace(shape, batches=own.get("batches", shape.batches)),
        )
    return found


def said_options(context: click.Context) -> set[str]:
    """The names of the options that the command line has."""
    default = click.core.ParameterSource.DEFAULT
    return {name for name in context.params if context.get_parameter_source(name) is not default}


@click.command(context_settings={"show_default": True})
@click.option("--query", "queries", type=click.Choice(list(QUERIES)), multiple=True, help="All without it.")
@click.option("--place", "places", type=click.Choice(list(PLACES)), multiple=True, help="All without it.")
@click.option("--side", "sides", type=click.Choice(list(KINDS)), multiple=True, help="The usual ones without it.")
@click.option("--partitions", type=click.IntRange(1), default=SCENARIO.partitions, help="s3 has 4 unless you say it.")
@click.option(
    "--batches",
    type=click.IntRange(4),
    default=SHAPE.batches,
    help="local has 46 unless you say it.",
)
@click.option("--events", type=click.IntRange(50), default=SHAPE.events, help="In a batch.")
@click.option("--seconds", type=click.IntRange(1), default=SHAPE.seconds, help="Event time of a batch.")
@click.option("--following", type=click.IntRange(0), default=3, help="Batches after the first one after a restart.")
@click.option("--warm-up", type=click.IntRange(0), default=SHAPE.warm_up, help="Small batches before, on a local disk.")
@click.option("--restart/--no-restart", default=True, help="Kill everything, and start each side again.")
@click.option("--equality/--no-equality", default=True, help="Compare all rows first, in a small run.")
@click.option("--door", type=click.Choice(DOORS), default=SCENARIO.door)
@click.option("--changelog/--no-changelog", default=True, help="RocksDB changelog checkpointing.")
@click.option("--seed", type=click.IntRange(0), default=SHAPE.seed)
@click.option("--quick", is_flag=True, help="Compare all rows, and show the figures of that small run.")
@click.option("--publish", "is_published", is_flag=True, help="Write figures, tables and picture into the repository.")
@click.option(
    "--raw",
    "earlier",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Publish the raw numbers of earlier runs of single queries, such as take hours together.",
)
@click.option("--check", is_flag=True, help="Fail where a tenth is lost since the published run; local unless you say.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
@click.pass_context
def main(
    context: click.Context,
    queries: tuple[str, ...],
    places: tuple[str, ...],
    sides: tuple[str, ...],
    partitions: int,
    batches: int,
    events: int,
    seconds: int,
    following: int,
    warm_up: int,
    restart: bool,
    equality: bool,
    door: str,
    changelog: bool,
    seed: int,
    quick: bool,
    is_published: bool,
    earlier: tuple[Path, ...],
    check: bool,
    build: bool,
    out: Path,
) -> None:
    """Run Nexmark's queries on stock Spark and on merged state, compare their rows, and what they cost."""
    said = said_options(context)
    queries, places, sides = (tuple(dict.fromkeys(each)) for each in (queries, places, sides))
    if not importlib.util.find_spec("matplotlib"):
        raise click.ClickException("matplotlib is missing, which draws the picture: pip install -e '.[benchmarks]'")
    options = {option.name: option.opts[0] for option in context.command.params}
    if quick and (given := [options[name] for name in sorted(said & OF_MEASUREMENTS)]):
        raise click.UsageError(f"--quick runs a small run of its own on a local disk: leave {', '.join(given)} out")
    if door == "path" and "remote" in sides:
        raise click.UsageError("remote-first state needs --door provider: leave --side remote out")
    if earlier and (not is_published or said - {"is_published", "earlier"}):
        raise click.UsageError(
            "--raw is what --publish is to publish instead of running anything: nothing else goes with it"
        )
    if is_published and said - {"is_published", "places", "queries", "earlier", "out"}:
        raise click.UsageError("--publish runs queries as they are by default: say --place and --query at most")
    if earlier:
        publish([each for file in earlier for each in read_raw(file)])
        return
    if is_published:
        # `publish` looks at each query, too; this is known before hours of measurements.
        refuse_changes(changes())
    if check and said & OF_PUBLISHED:
        raise click.UsageError("--check runs what was published, which says how much and how: leave these options out")
    if sides and any(KINDS[side].stock not in sides for side in sides):
        raise click.UsageError("each side needs the stock side of its store: --side stock --side merged")
    published: dict[str, Any] = json.loads(PUBLISHED.read_text()) if PUBLISHED.exists() else {}
    if check and not published:
        raise click.ClickException(f"{PUBLISHED} is missing; run this with --publish on a quiet machine")
    if check and (unknown := [place for place in places if place not in published]):
        raise click.UsageError(f"nothing is published of {', '.join(unknown)}, so there is nothing to compare with")
    require_writable(out)
    begin = Begin.now(build, compared=equality and not check)
    if build:
        build_shim()
    started = time.monotonic()
    scenario = dataclasses.replace(SCENARIO, partitions=partitions, door=door, changelog=changelog)
    shape = Shape(batches, events, seconds, seed, warm_up)
    chosen = [name for name in QUERIES if not queries or name in queries]
    # What was measured to be published is not replaced by a check.
    file = out / f"nexmark{'-quick' if quick else '-check' if check else ''}.json"
    raw: list[dict[str, Any]] = []
    failed: list[str] = []
    if quick or (equality and not check):
        compared = COMPARED if quick else COMPARED + MORE_COMPARED
        raw = compare_all(chosen, sides or _through(door, compared), not quick, scenario, shape)
        print(f"all rows are the same, after {time.monotonic() - started:.0f} s", file=sys.stderr)
    where = [place for place in PLACES if (place in places if places else place == "local" or not check)]
    shapes = shapes_at(where, shape, scenario, said)
    if check:
        where = [place for place in where if place in published]
        shapes = {place: of_published(published[place]) for place in where}
    more = following if restart and not check else -1
    if not quick:
        raw, failed = measure_all(chosen, where, sides, shapes, more, begin, lambda so_far: _save(so_far, file))
    if not raw:
        raise click.ClickException("; ".join(failed) or "nothing was measured")
    _save(raw, file)
    found = figures_of(raw)
    results.draw(found, file.with_suffix(".png"))
    Console(width=max(120, Console().width)).print(Markdown("\n".join(results.summary(found))))
    file.with_suffix(".md").write_text("\n".join([*results.summary(found), "", *results.tables(found)]) + "\n")
    for sentence in results.missed(found) if not quick else []:
        print(f"MISSED: {sentence}")
    print(f"raw numbers: {file}; tables and picture: the same name with .md and .png", file=sys.stderr)
    print(f"all of it took {time.monotonic() - started:.0f} s", file=sys.stderr)
    if is_published and not failed:
        publish(raw)
    if check:

        def measure(place: str, query: str) -> list[dict[str, Any]]:
            return measure_all([query], [place], sides, shapes, more, begin, lambda _: None)[0]

        alone = results.not_compared(published_figures(published), found)
        worse = check_again(published_figures(published), found, measure)
        for place in found:
            now, before = (
                next(each for each in raw if each["place"] == place)["environment"],
                published[place]["environment"],
            )
            for name in VERSIONS:
                if now[name] != before[name]:
                    print(f"DIFFERENT: {place} has {name} {now[name]}, and was published with {before[name]}")
        for what in alone:
            print(f"NOT COMPARED: {what}")
        if not results.compared(published_figures(published), found):
            raise click.ClickException("nothing of this run was published, so nothing was compared")
        for each in worse:
            print(f"WORSE: {each}")
        if worse:
            raise click.ClickException(f"{len(worse)} figures are more than a tenth worse than those in {PUBLISHED}")
    if failed:
        raise click.ClickException("; ".join(failed))


def _through(door: str, sides: tuple[str, ...]) -> tuple[str, ...]:
    """The sides that there are with a door: by the path, no state is remote."""
    return tuple(side for side in sides if door != "path" or side != "remote")


def refuse_changes(differs: str, run: str = "this run") -> None:
    """Raises `click.UsageError` where figures of a run cannot be published of its commit.

    Args:
        differs: The files of the run that differ from its commit; empty where none does.
        run: What was run.
    """
    if differs:
        raise click.UsageError(f"figures are published of a commit, and these files of {run} differ from it: {differs}")


def changes() -> str:
    """The files that differ from the commit, of those that figures depend on; none outside of a clone."""
    if not (ROOT / ".git").exists():
        return ""
    said = git(ROOT, "status", "--porcelain", "--", *BUILT_FROM)
    return "those that git does not tell" if said is None else ", ".join(line[3:] for line in said.splitlines())


@dataclass(frozen=True)
class Begin:
    """What a run began with.

    Attributes:
        commit: The one that was here when the jars were built.
        differs: What differed from it then; the jars where they were not built for the run; empty where nothing did.
        compared: Whether all rows were compared in a small run.
    """

    commit: str
    differs: str
    compared: bool

    @staticmethod
    def now(is_built: bool, compared: bool) -> Begin:
        """What is here before jars are built, if they are."""
        return Begin(commit(ROOT), changes() if is_built else "the jars, which were not built for this run", compared)


def differences(begin: Begin) -> str:
    """What of a run that is over differs from the commit that it began with; empty where nothing does."""
    now = commit(ROOT)
    if begin.differs or now == begin.commit:
        return begin.differs or changes()
    return f"the jars, which were built of {begin.commit[:8]}, and now {now[:8]} is here"


def end_in_order() -> None:
    """Lets SIGTERM, and SIGHUP of a closed terminal, end this process and all that it started, as an interrupt does."""

    def end(number: int, _: Any) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # `nohup` has said that a closed terminal is to end nothing.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def require_writable(out: Path) -> None:
    """Makes a directory for results, and raises `click.UsageError` where none can be written: not after hours."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise click.UsageError(f"--out {out} cannot be written: {error.strerror}") from error


def _save(raw: list[dict[str, Any]], file: Path) -> None:
    # Whoever ends the run meanwhile leaves the numbers of hours as they were.
    written = file.with_suffix(".part")
    written.write_text(json.dumps(raw, indent=1) + "\n")
    written.replace(file)


def read_raw(file: Path) -> list[dict[str, Any]]:
    """Reads the raw numbers that a run has saved.

    Args:
        file: The file.

    Returns:
        Those of each query.

    Raises:
        click.UsageError: It has something else, or not all of it, or a query that `--publish` would have run in another
            way.
    """
    try:
        raw: list[dict[str, Any]] = json.loads(file.read_text())
        odd = [f"{each['query']} at {each['place']}" for each in raw if not _is_usual(each)]
        figures_of(raw)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise click.UsageError(f"{file} does not have the raw numbers of a whole run ({why})") from error
    if not raw:
        raise click.UsageError(f"{file} has the raw numbers of no query")
    if odd:
        raise click.UsageError(f"only what was run as by default, with a restart, can be published: {', '.join(odd)}")
    return raw


if __name__ == "__main__":
    end_in_order()
    main()
