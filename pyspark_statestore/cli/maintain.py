"""The command ``compact``."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import DAMAGED, Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output


@click.command(
    "compact",
    cls=Command,
    examples=[
        "pyspark-statestore compact /checkpoints/q1 --dry-run",
        "pyspark-statestore compact s3a://bucket/q1 --smaller-than 16m --target-file-size 256m",
        "pyspark-statestore compact hdfs://nn/checkpoints/q1 --max-space-amplification 1.1 --abandoned-after 10m",
    ],
    interrupted="Nothing that is needed is gone. Run it again at any time; what was copied in vain goes then or later.",
)
@options.dry_run("Only say what would be rewritten and removed.")
@options.checkpoint
@click.option(
    "--max-space-amplification",
    type=click.FloatRange(min=1),
    default=1.5,
    show_default=True,
    help="Rewrite files of which more than this many bytes are kept for each live one.",
)
@click.option(
    "--target-file-size", type=options.Size(), default="128m", show_default=True, help="How large new files become."
)
@click.option(
    "--smaller-than",
    type=options.Size(),
    show_default="three quarters of --target-file-size",
    help="Join files smaller than this.",
)
@click.option(
    "--localize",
    is_flag=True,
    help="In a fork: also copy everything that it reads in other checkpoints, so that it needs them no more.",
)
@options.abandoned_after
@options.output
def compact_command(
    checkpoint: Checkpoint,
    output: Output,
    dry_run: bool,
    max_space_amplification: float,
    target_file_size: int,
    smaller_than: int | None,
    localize: bool,
    abandoned_after: datetime.timedelta,
) -> None:
    """Rewrite files that are mostly dead or small.

    Those that nothing lives in are removed. The query may be running, or not: files that it may still append to stay as
    they are. In a Spark session the same is spread over executors; see docs/keep-it-small.md.
    """
    from pyspark_statestore.cli.output import Report, figures_of, progress
    from pyspark_statestore.cli.views import REWRITTEN

    with progress("Rewriting merged files", "bytes") as callback:
        done = checkpoint.maintenance.compact(
            max_space_amplification=max_space_amplification,
            target_file_size=target_file_size,
            where=None if smaller_than is None else _where(smaller_than, max_space_amplification),
            localize=localize,
            abandoned_after=abandoned_after,
            dry_run=dry_run,
            callback=callback,
        )
    title, details = f"Compaction of {checkpoint.url}", {"files": (done.files, REWRITTEN)}
    output.report(Report.of(title, figures_of(done), details, dry_run=done.dry_run))


def _where(smaller_than: int, max_space_amplification: float) -> Any:
    import pyarrow.compute as pc

    # Of a file that nothing lives in, the second is null, which "or" passes over.
    return (pc.field("file_size_in_bytes") < smaller_than) | (pc.field("space_amplification") > max_space_amplification)


# The command ``consolidate``.


@click.command(
    "consolidate",
    cls=Command,
    examples=[
        "pyspark-statestore consolidate s3a://bucket/q1 --dry-run",
        "pyspark-statestore consolidate s3a://bucket/q1",
    ],
    interrupted="Nothing that is needed is gone; run it again at any time.",
)
@options.dry_run("Only say what would be written and removed.")
@options.checkpoint
@options.output
def consolidate_command(checkpoint: Checkpoint, output: Output, dry_run: bool) -> None:
    """Write one file with the indexes of all sealed ones.

    Who starts opens that one and not each of them. Older files of its kind are removed. The query may be running.
    """
    from pyspark_statestore.cli.output import Report, figures_of, progress

    with progress("Consolidating the index", ""):
        done = checkpoint.maintenance.consolidate_index(dry_run=dry_run)
    output.report(Report.of(f"Index of {checkpoint.url}", figures_of(done), dry_run=done.dry_run))


# The command ``expire``.


@click.command(
    "expire",
    cls=Command,
    examples=[
        "pyspark-statestore expire /checkpoints/q1 --retain-last 2",
        "pyspark-statestore expire /checkpoints/q1 --retain-last 2 --no-dry-run",
    ],
    interrupted="The versions that are to be retained are whole; run it again to delete the rest.",
)
@options.dry_run("Only say what would be deleted; so it is unless --no-dry-run is given.", default=True)
@options.checkpoint
@click.option(
    "--retain-last",
    type=click.IntRange(min=1),
    required=True,
    help="How many batches can be gone back to afterwards; the last committed one always can.",
)
@click.option("--force", is_flag=True, help="Do it though the query seems to be running; it has to be stopped.")
@options.output
def expire_command(checkpoint: Checkpoint, output: Output, dry_run: bool, retain_last: int, force: bool) -> None:
    """Delete the oldest versions of a stopped query.

    They are deleted with --no-dry-run only. Files in which nothing lives any more go at once; other space that comes
    free does so with the next: pyspark-statestore compact PATH.
    """
    from pyspark_statestore.cli.output import Report, figures_of, progress

    with progress("Reading versions", ""):
        done = checkpoint.maintenance.expire(retain_last, dry_run=dry_run, force=force)
    title = f"Versions of {checkpoint.url}"
    output.report(Report.of(title, figures_of(done), dry_run=done.dry_run, really="--no-dry-run"))


# The command ``orphans``.


@click.command(
    "orphans",
    cls=Command,
    examples=[
        "pyspark-statestore orphans /checkpoints/q1",
        "pyspark-statestore orphans /checkpoints/q1 --no-dry-run",
        "pyspark-statestore orphans s3a://bucket/q1 --older-than 1d --no-dry-run --output json",
    ],
    interrupted="Only files that nobody can need are gone; run it again at any time.",
)
@options.dry_run("Only say what would be removed; so it is unless --no-dry-run is given.", default=True)
@options.checkpoint
@click.option(
    "--older-than",
    type=options.Duration(),
    default="3d",
    show_default=True,
    help="Younger files stay: somebody may be about to refer to them.",
)
@click.option("--force", is_flag=True, help="Allow --older-than of less than an hour.")
@options.output
def orphans_command(
    checkpoint: Checkpoint, output: Output, dry_run: bool, older_than: datetime.timedelta, force: bool
) -> None:
    """Find and remove files that nobody can need.

    They are removed with --no-dry-run only. These are merged files that nothing can be read from, what crashed writers
    and compactions have left, and plain state files that nothing refers to. The query may be running.
    """
    from pyspark_statestore.cli.output import Report, figures_of, progress
    from pyspark_statestore.cli.views import ORPHANS

    with progress("Looking for orphans", ""):
        done = checkpoint.maintenance.remove_orphan_files(older_than, dry_run=dry_run, force=force)
    title, details = f"Orphans of {checkpoint.url}", {"files": (done.files, ORPHANS)}
    output.report(Report.of(title, figures_of(done), details, dry_run=done.dry_run, really="--no-dry-run"))


# The command ``verify``.

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

    from pyspark_statestore.cli.output import Report, progress
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
