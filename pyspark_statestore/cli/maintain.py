"""The commands that keep a checkpoint small and sound: compact, consolidate, expire, orphans, verify."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import next_steps, options
from pyspark_statestore.cli.commands import DAMAGED, Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output
    from pyspark_statestore.maintenance.verify.verification import Verification

_VERIFIED = ("read_bytes_count", "files_count", "segments_count", "versions_count")
"""The counts in the report of ``verify``."""


@click.command(
    "compact",
    cls=Command,
    examples=[
        "pyspark-statestore compact /checkpoints/q1 --dry-run",
        "pyspark-statestore compact s3a://bucket/q1 --smaller-than 16m --target-file-size 256m",
        "pyspark-statestore compact hdfs://nn/checkpoints/q1 --max-space-amplification 1.1 --abandoned-after 10m",
    ],
    interrupted="Nothing that is needed is gone. Run it again at any time; it removes unneeded copies then or later.",
)
@options.dry_run("Only show what would be rewritten and removed.")
@options.checkpoint
@click.option(
    "--max-space-amplification",
    type=click.FloatRange(min=1),
    default=1.5,
    show_default=True,
    help="Rewrite files that have more than this many bytes for each live byte.",
)
@click.option(
    "--target-file-size", type=options.Size(), default="128m", show_default=True, help="The size of new files."
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
    help="In a fork, also copy what it reads from other checkpoints, so that it does not need them any more.",
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

    Files in which nothing lives are removed. The query may be running: files that it may still append to stay as they
    are. To spread the work over Spark's executors, see docs/keep-it-small.md.
    """
    from pyspark_statestore.cli.layouts import REWRITTEN
    from pyspark_statestore.cli.output import Report, figures_of, progress

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
    step = next_steps.after_compact(checkpoint.url, done, localize=localize)
    output.report(Report.of(title, figures_of(done), details, dry_run=done.dry_run, next_step=step))


@click.command(
    "consolidate",
    cls=Command,
    examples=[
        "pyspark-statestore consolidate s3a://bucket/q1 --dry-run",
        "pyspark-statestore consolidate s3a://bucket/q1",
    ],
    interrupted="Nothing that is needed is gone. Run it again at any time.",
)
@options.dry_run("Only show what would be written and removed.")
@options.checkpoint
@options.output
def consolidate_command(checkpoint: Checkpoint, output: Output, dry_run: bool) -> None:
    """Write one file with the indexes of all sealed ones.

    A query that starts opens that file instead of all the others. Older files of its kind are removed. The query may be
    running.
    """
    from pyspark_statestore.cli.output import Report, figures_of, progress

    with progress("Consolidating the index", ""):
        done = checkpoint.maintenance.consolidate_index(dry_run=dry_run)
    title, step = f"Index of {checkpoint.url}", next_steps.after_consolidate(checkpoint.url, done)
    output.report(Report.of(title, figures_of(done, "is_idle"), dry_run=done.dry_run, next_step=step))


@click.command(
    "expire",
    cls=Command,
    examples=[
        "pyspark-statestore expire /checkpoints/q1 --retain-last 2",
        "pyspark-statestore expire /checkpoints/q1 --retain-last 2 --no-dry-run",
    ],
    interrupted="The retained versions are whole. Run it again to delete the rest.",
)
@options.dry_run("Only show what would be deleted. This is the default.", default=True)
@options.checkpoint
@click.option(
    "--retain-last",
    type=click.IntRange(min=1),
    required=True,
    help="How many batches the query can go back to afterwards; it always can to the last committed one.",
)
@click.option("--force", is_flag=True, help="Do it even if the query seems to be running. It must be stopped.")
@options.output
def expire_command(checkpoint: Checkpoint, output: Output, dry_run: bool, retain_last: int, force: bool) -> None:
    """Delete the oldest versions of a stopped query.

    Nothing is deleted without --no-dry-run. Files in which nothing lives any more are removed at once. To free the
    other space, run: pyspark-statestore compact PATH.
    """
    from pyspark_statestore.cli.output import Report, figures_of, progress

    with progress("Reading versions", ""):
        done = checkpoint.maintenance.expire(retain_last, dry_run=dry_run, force=force)
    title, really = f"Versions of {checkpoint.url}", "--no-dry-run"
    step = next_steps.after_expire(checkpoint.url, done.removed_files_count)
    output.report(Report.of(title, figures_of(done), dry_run=done.dry_run, really=really, next_step=step))


@click.command(
    "orphans",
    cls=Command,
    examples=[
        "pyspark-statestore orphans /checkpoints/q1",
        "pyspark-statestore orphans /checkpoints/q1 --no-dry-run",
        "pyspark-statestore orphans s3a://bucket/q1 --older-than 1d --no-dry-run --output json",
    ],
    interrupted="Only files that nobody can need are gone. Run it again at any time.",
)
@options.dry_run("Only show what would be removed. This is the default.", default=True)
@options.checkpoint
@click.option(
    "--older-than",
    type=options.Duration(),
    default="3d",
    show_default=True,
    help="Keep younger files: something may refer to them soon.",
)
@click.option("--force", is_flag=True, help="Allow --older-than of less than an hour.")
@options.output
def orphans_command(
    checkpoint: Checkpoint, output: Output, dry_run: bool, older_than: datetime.timedelta, force: bool
) -> None:
    """Find and remove files that nobody can need.

    Nothing is removed without --no-dry-run. Orphans are merged files from which nothing can be read, leftovers of
    crashed writers and compactions, and state files that nothing refers to. The query may be running.
    """
    from pyspark_statestore.cli.layouts import ORPHANS
    from pyspark_statestore.cli.output import Report, figures_of, progress

    with progress("Looking for orphans", ""):
        done = checkpoint.maintenance.remove_orphan_files(older_than, dry_run=dry_run, force=force)
    title, details = f"Orphans of {checkpoint.url}", {"files": (done.files, ORPHANS)}
    really, step = "--no-dry-run", next_steps.after_orphans(checkpoint.url, done)
    output.report(Report.of(title, figures_of(done), details, dry_run=done.dry_run, really=really, next_step=step))


@click.command(
    "verify",
    cls=Command,
    examples=[
        "pyspark-statestore verify /checkpoints/q1",
        "pyspark-statestore verify /checkpoints/q1 --repair --dry-run",
        "pyspark-statestore verify s3a://bucket/q1 --output json | jq .damages",
    ],
    interrupted="The rest was not checked. Run it again at any time.",
)
@options.dry_run("With --repair, only show what would be repaired. Without --repair nothing is changed anyway.")
@options.checkpoint
@click.option("--repair", is_flag=True, help="Repair what can be repaired without losing anything.")
@options.output
@click.pass_context
def verify_command(ctx: click.Context, checkpoint: Checkpoint, output: Output, dry_run: bool, repair: bool) -> None:
    """Read and check every live byte and every version.

    A version is sound if all files that restore it are there. The query may be running. The exit status is 0 where
    nothing is damaged or all damage was repaired, and 3 where damage is left.
    """
    import pyarrow.compute as pc

    from pyspark_statestore.cli.layouts import DAMAGES
    from pyspark_statestore.cli.output import Report, progress

    with progress("Verifying", "bytes") as callback:
        done = checkpoint.maintenance.verify(repair=repair, dry_run=dry_run, callback=callback)
    left = sum(not damage.repaired for damage in done.damages)
    figures = {"is_clean": done.is_clean, **{name: getattr(done, name) for name in _VERIFIED}}
    figures |= {"damages_count": len(done.damages), "repaired_count": done.repaired_count}
    figures |= {"committed_version": done.committed_version, "restorable_version": done.restorable_version}
    found = done.to_arrow()
    details = {
        f"{severity}s": (found.filter(pc.equal(found["severity"], severity)).drop_columns(["severity"]), DAMAGES)
        for severity in ("damage", "note")
    }
    title = f"State of {checkpoint.url}"
    note, step = _note(left, checkpoint.url, done), next_steps.after_verify(checkpoint.url, done)
    was_dry = dry_run if repair else None
    output.report(Report.of(title, figures, details, dry_run=was_dry, note=note, next_step=step))
    if left:
        ctx.exit(DAMAGED)


def _where(smaller_than: int, max_space_amplification: float) -> Any:
    import pyarrow.compute as pc

    # The space amplification of a file in which nothing lives is null, which "or" passes over.
    return (pc.field("file_size_in_bytes") < smaller_than) | (pc.field("space_amplification") > max_space_amplification)


def _note(left: int, url: str, done: Verification) -> str:
    """What to do about the damage that is left: the query can go on all the same, or from an older version."""
    from pyspark_statestore.log.restart import way_out

    if not left:
        return ""
    damage = "1 damage is" if left == 1 else f"{left:,} damages are"
    note = f"{damage} not repaired. Restore the files from a copy, or see --repair."
    if done.committed_version is None:
        return note
    if done.restorable_version == done.committed_version:
        return f"{note} The query can go on: version {done.committed_version}, its newest, can be restored."
    lost = f"The query cannot go on: version {done.committed_version}, its newest, cannot be restored."
    return f"{lost} {way_out(url, done.restorable_version)}\n{note}"
