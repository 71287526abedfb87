"""Figures with targets: the table that says whether each is met, and bars with the target beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Figure:
    """A line of the result.

    Attributes:
        name: What was measured.
        value: The value; None where it could not be measured.
        unit: The unit of the value.
        most: The target, where less is better; None where there is none.
        note: Why there is no value.
        least: The target, where more is better; None where there is none.
    """

    name: str
    value: float | None
    unit: str = ""
    most: float | None = None
    note: str = ""
    least: float | None = None

    @property
    def met(self) -> str:
        """Whether the target is met."""
        if self.value is None:
            return f"not measured: {self.note}"
        if self.most is None and self.least is None:
            return ""
        is_met = (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)
        return "met" if is_met else "MISSED"

    @property
    def target(self) -> str:
        """The target in words; empty where there is none."""
        bounds = [
            f"{sign} {bound:,.6g}" for sign, bound in (("<=", self.most), (">=", self.least)) if bound is not None
        ]
        return f"{' and '.join(bounds)} {self.unit}".strip() if bounds else ""

    def to_json(self) -> dict[str, Any]:
        """For the file with the raw numbers."""
        return {**asdict(self), "met": self.met}


def child(module: str, *arguments: str) -> dict[str, Any]:
    """Runs a module of the benchmarks in a process of its own, and returns the JSON of the last line that it prints.

    Args:
        module: The module's name within the package.
        *arguments: The arguments of the process.

    Raises:
        click.ClickException: It fails. It has printed why.
    """
    command = [sys.executable, "-W", "ignore::FutureWarning", "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise click.ClickException(f"{arguments[0]} failed with exit code {done.returncode}; the reason is above")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def print_table(title: str, figures: list[Figure]) -> None:
    """Prints figures, targets, and whether they are met."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("", "measured", "target", ""):
        table.add_column(column, justify="right" if column in ("measured", "target") else "left")
    for figure in figures:
        style = {"MISSED": "bold red", "met": "green"}.get(figure.met, "dim")
        table.add_row(figure.name, _shown(figure), figure.target, f"[{style}]{figure.met}[/{style}]")
    Console(width=max(110, Console().width)).print(table)


def _shown(figure: Figure) -> str:
    if figure.value is None:
        return "-"
    number = {"s": f"{figure.value:,.2f}", "MB": f"{figure.value:,.0f}", "MB/s": f"{figure.value:,.0f}"}
    return f"{number.get(figure.unit, f'{figure.value:,.6g}')} {figure.unit}".strip()


def draw_bars(axis: Any, unit: str, what: str, figures: list[tuple[str, Figure]]) -> None:
    """Draws bars, and a red line at each target.

    Args:
        axis: The matplotlib axes.
        unit: The unit of the figures to draw.
        what: The numbers are, for the axis.
        figures: The figures by their labels.
    """
    for name, figure in figures:
        if figure.unit != unit or figure.value is None:
            continue
        axis.barh([name], [figure.value], color="#2f6db3", height=0.6)
        shown = f" {figure.value:,.2f}" if unit == "s" else f" {figure.value:,.0f}"
        axis.text(figure.value, name, shown, va="center")
        for bound in (figure.most, figure.least):
            if bound is not None:
                axis.plot([bound] * 2, [len(axis.patches) - 1.4, len(axis.patches) - 0.6], color="#b0483a", lw=2)
    axis.margins(x=0.15)
    axis.invert_yaxis()
    axis.set_xlabel(f"{what}; red: the target")
    axis.grid(axis="x", alpha=0.3)


def publish(
    name: str, title: str, raw: dict[str, Any], figures: list[Figure], draw: Callable[[Path], None], out: Path
) -> None:
    """Writes raw numbers with their figures and a picture, and prints the figures.

    Args:
        name: The stem of the files' names.
        title: The title of the table.
        raw: The raw numbers.
        figures: The figures made of them.
        draw: Draws the picture to a path.
        out: The directory to write to.
    """
    out.mkdir(parents=True, exist_ok=True)
    raw["figures"] = [figure.to_json() for figure in figures]
    (out / f"{name}.json").write_text(json.dumps(raw, indent=1, default=str) + "\n")
    draw(out / f"{name}.png")
    print_table(title, figures)
    print(f"raw numbers: {out}/{name}.json, picture: {out}/{name}.png", file=sys.stderr)
