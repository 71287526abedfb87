"""The command ``verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import DAMAGED, Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output

_FIGURES = ("read_bytes_count", "files_count", "segments_count", "versions_count")


@click.command(
    "verify",
    cls=Command,
    examples=[
        "pyspark-statestore verify /checkpoints/q1",
        "pyspark-statestore verify /checkpoints/q1 --repair --dry-run",
        "pyspark-statestore verify s3a://bucket/q1 --output json | jq .damages",
    ],
    interrupted="What was read so far says nothing of the rest; run it again at any time.",
)
@options.dry_run("With --repair: only say what would be mended. Without it nothing is changed anyway.")
@options.checkpoint
@click.option("--repair", is_flag=True, help="Mend what can be mended without losing anything.")
@options.output
@click.pass_context
def verify_command(ctx: click.Context, checkpoint: Checkpoint, output: Output, dry_run: bool, repair: bool) -> None:
    """Read and check every live byte and every version.

    A version is checked by whether all that it is restored from is there. The query may be running. The exit status is
    0 where nothing is damaged, or all of it is repaired, and 3 where damage is left.
    """
    import pyarrow.compute as pc

    from pyspark_statestore.cli.output import Report
    from pyspark_statestore.cli.progress import progress
    from pyspark_statestore.cli.views import DAMAGES

    with progress("Verifying", "bytes") as callback:
        done = checkpoint.maintenance.verify(repair=repair, dry_run=dry_run, callback=callback)
    left = sum(not damage.repaired for damage in done.damages)
    figures = {"is_clean": done.is_clean, **{name: getattr(done, name) for name in _FIGURES}}
    figures |= {"damages_count": len(done.damages), "repaired_count": done.repaired_count}
    found = done.to_arrow()
    details = {
        f"{severity}s": (found.filter(pc.field("severity") == severity).drop_columns(["severity"]), DAMAGES)
        for severity in ("damage", "note")
    }
    title = f"State of {checkpoint.url}"
    output.report(Report.of(title, figures, details, dry_run=dry_run and repair, note=_note(left)))
    if left:
        ctx.exit(DAMAGED)


def _note(left: int) -> str:
    if not left:
        return ""
    return (
        f"{left:,} damage{'s are' if left > 1 else ' is'} not repaired. Restore the files from a copy, or see --repair."
    )
