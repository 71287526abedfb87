"""How many files and file-system calls does streaming state cost? Stock Spark and merged state, side by side.

python benchmarks/small_files.py                         # aggregation, 50 partitions x 12 batches
python benchmarks/small_files.py --preset issue          # 200 partitions x 69 batches
python benchmarks/small_files.py --workload stream_join --delay-ms 0 --delay-ms 5
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import report  # noqa: E402
from benchmarks.figures import figures  # noqa: E402
from benchmarks.scenario import DOORS, PRESETS, SIDES, STORES, WORKLOADS, Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402

SEVERAL = ("workload", "door", "store", "partitions", "delay_ms")


def scenarios(values: dict[str, Any]) -> list[Scenario]:
    """Returns all combinations of the options, without those that Spark refuses.

    Args:
        values: Field of Scenario -> value; those in SEVERAL are sequences.

    Returns:
        The scenarios, in the order of the command line.
    """
    single = {key: value for key, value in values.items() if key not in SEVERAL}
    found = []
    for combination in itertools.product(*(values[key] for key in SEVERAL)):
        scenario = Scenario(**single, **dict(zip(SEVERAL, combination, strict=True)))
        if scenario.possible():
            found.append(scenario)
        else:
            print(f"left out, Spark refuses it: {scenario.title()}", file=sys.stderr)
    return found


def run_in_child(scenario: Scenario) -> dict[str, Any]:
    """Runs a scenario in a process and JVM of its own.

    Args:
        scenario: What to run.

    Returns:
        The scenario's raw numbers.

    Raises:
        click.ClickException: The child failed. Its error is on stderr.
    """
    with tempfile.TemporaryDirectory() as directory:
        order, answer = Path(directory) / "in.json", Path(directory) / "out.json"
        order.write_text(json.dumps(scenario.to_json()))
        command = [
            sys.executable,
            "-W",
            "ignore::FutureWarning",
            "-m",
            "benchmarks.run_scenario",
            str(order),
            str(answer),
        ]
        if subprocess.run(command, cwd=ROOT).returncode or not answer.exists():
            raise click.ClickException(f"this run failed: {scenario.title()}")
        result: dict[str, Any] = json.loads(answer.read_text())
        return result


def run_all(planned: list[Scenario], memory: bool) -> list[dict[str, Any]]:
    """Runs the scenarios one after the other.

    Args:
        planned: The scenarios.
        memory: Whether to run each side alone as well, for the peak memory of its JVM.

    Returns:
        The scenarios' raw numbers.
    """
    results = []
    for number, scenario in enumerate(planned, 1):
        print(f"[{number}/{len(planned)}] {scenario.title()}", file=sys.stderr)
        result = run_in_child(scenario)
        if memory:
            result["memory"] = {}
            for side in scenario.sides:
                print(f"  {side} alone, for its memory", file=sys.stderr)
                alone = run_in_child(dataclasses.replace(scenario, sides=(side,)))
                result["memory"][side] = alone["sides"][side]["memory"]
        results.append(result)
    return results


def _options(pairs: tuple[str, ...]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--option")
        options[name] = value
    return options


@click.command(context_settings={"show_default": True})
@click.option("--preset", type=click.Choice(list(PRESETS)), help="Set several options at once; others still win.")
@click.option("--workload", type=click.Choice(WORKLOADS), multiple=True, default=["aggregation"])
@click.option("--door", type=click.Choice(DOORS), multiple=True, default=["provider"])
@click.option("--store", type=click.Choice(STORES), multiple=True, default=["rocksdb"])
@click.option("--partitions", type=click.IntRange(1), multiple=True, default=[50], help="Shuffle partitions.")
@click.option("--batches", type=click.IntRange(2), default=12)
@click.option("--delay-ms", type=click.IntRange(0), multiple=True, default=[0], help="Sleep in each metadata call.")
@click.option("--filesystem", type=click.Choice(["counting", "objectstore"]), default="counting")
@click.option("--rows-per-batch", type=click.IntRange(1), default=5_000)
@click.option("--keys", type=click.IntRange(1), default=50_000, help="Keys are drawn uniformly from this many.")
@click.option("--value-bytes", type=click.IntRange(0), default=0, help="Random bytes in each row, and in the state.")
@click.option("--sides", type=click.Choice(["both", *SIDES]), default="both")
@click.option("--changelog/--no-changelog", default=True, help="RocksDB changelog checkpointing.")
@click.option(
    "--checkpoint-version", type=click.Choice([1, 2]), default=1, help="State store checkpoint format of Spark."
)
@click.option("--retain", type=click.IntRange(1), default=100, help="minBatchesToRetain.")
@click.option("--maintenance-interval", default="10s", help="Of both sides; Spark's default is 60s.")
@click.option("--chmod-fork", is_flag=True, help="Start a chmod process per new file, as file: does here and there.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Of merged state, as for configure().")
@click.option("--seed", default=20130101)
@click.option("--memory", is_flag=True, help="Also run each side alone, for the peak memory of its JVM.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
@click.pass_context
def main(context: click.Context, preset: str | None, memory: bool, build: bool, out: Path, **values: Any) -> None:
    """Run streaming queries on stock Spark and on merged state, in turn, and compare what they cost."""
    values["options"] = _options(values["options"])
    values["sides"] = SIDES if values["sides"] == "both" else (values["sides"],)
    for name, value in PRESETS.get(preset or "", {}).items():
        if context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT:
            values[name] = value
    planned = scenarios(values)
    if not planned:
        raise click.ClickException("nothing to run")
    if build:
        build_shim()
    raw = run_all(planned, memory)
    found = [figures(result) for result in raw]
    name = f"small_files-{preset or 'custom'}"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(raw, indent=1) + "\n")
    report.draw(found, raw, out / f"{name}.png")
    report.print_tables(found)
    print(f"raw numbers: {out / name}.json, picture: {out / name}.png", file=sys.stderr)


if __name__ == "__main__":
    main()
