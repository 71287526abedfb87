"""What comes after each command that changes something: the one line with which it ends."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pyspark_statestore.conf import OPTIONS

if TYPE_CHECKING:
    from pyspark_statestore.forks.fork import Fork
    from pyspark_statestore.maintenance.compaction import Compaction
    from pyspark_statestore.maintenance.consolidation import Consolidation
    from pyspark_statestore.maintenance.fork_release import ForkRelease
    from pyspark_statestore.maintenance.old_partitions import OldPartitions
    from pyspark_statestore.maintenance.orphans import OrphanRemoval
    from pyspark_statestore.maintenance.verify.verification import Verification
    from pyspark_statestore.migration.conversion import Conversion
    from pyspark_statestore.migration.export import Export
    from pyspark_statestore.migration.repartition import Repartition
    from pyspark_statestore.migration.repartition_undo import RepartitionUndo
    from pyspark_statestore.migration.store_conversion import StoreConversion
    from pyspark_statestore.sink.compaction import SinkCompaction
    from pyspark_statestore.sink.orphans import SinkOrphanRemoval
    from pyspark_statestore.sink.verification import SinkVerification
    from pyspark_statestore.sink.waiting import SinkPublication

_NO_MORE = "With configure(builder, sink=True) the query makes no new small files."


class Idle(str):
    """What comes after a command for which there was nothing to do."""


def command(verb: str, url: str, *options: str) -> str:
    """A command line to paste."""
    return " ".join(["pyspark-statestore", verb, shlex.quote(url), *options])


def after_compact(url: str, done: Compaction, *, localize: bool) -> str:
    """After ``compact``."""
    is_idle = not (done.rewritten_files_count or done.removed_files_count or done.removed_claimed_files_count)
    if localize:
        said = f"{url} needs no other checkpoint any more. Its source may be deleted, if nobody else needs that."
        return Idle(said) if is_idle else said
    if is_idle:
        return Idle(f"nothing has to be done. What is kept, and why: {command('summary', url)}")
    most = OPTIONS["maxSpaceAmplification"].default
    said = f"run it again when space_amplification is above {most}; a running query sees to that by itself"
    return f"{said}: {command('summary', url)}"


def after_consolidate(url: str, done: Consolidation) -> str:
    """After ``consolidate``."""
    if done.is_idle:
        there = "the index is in one file already" if done.covered_files_count else "there are too few sealed files yet"
        return Idle(f"nothing has to be done: {there}.")
    instead = f"one file instead of {done.covered_files_count:,}" if done.covered_files_count else "one file"
    return f"start the query; it opens {instead}. Join small files, too: {command('compact', url)}"


def after_expire(url: str, removed: int) -> str:
    """After ``expire``: how many files it has deleted says whether there is space to free."""
    if not removed:
        return Idle(f"nothing has to be done: nothing was old enough. What there is: {command('versions', url)}")
    return f"free their space: {command('compact', url)}"


def after_orphans(url: str, done: OrphanRemoval) -> str:
    """After ``orphans``."""
    if not done.removed_files_count:
        return Idle("nothing has to be done: there are no orphans of that age.")
    return f"see that all is there: {command('verify', url)}"


def after_verify(url: str, done: Verification) -> str:
    """After ``verify``; where damage is left, its note says what to do."""
    if not done.is_clean:
        return ""
    if done.repaired_count:
        return f"see that nothing is left: {command('verify', url)}"
    return Idle("nothing has to be done.")


def after_fork(made: Fork) -> str:
    """After ``fork``."""
    start = (
        f"start a query with checkpointLocation {made.path!r}, by the same door (by the path door that is "
        f"merged_path({made.path!r})), with the same sources and another sink."
    )
    if not made.sinks_count:
        start += " If that is a file sink, make the fork with it: --sink OLD NEW."
    if made.mode == "claim":
        return f"{start} {made.source} must not be used any more."
    if made.mode == "copy":
        return f"{start} The two have nothing to do with each other."
    return f"{start} To need {made.source} no more: {command('compact', made.path, '--localize')}"


def after_release(url: str, done: ForkRelease) -> str:
    """After ``release``."""
    if not done.released_pins_count:
        return Idle(f"nothing has to be done: {done.fork} has nothing pinned here.")
    return f"let the files go in which nothing lives any more: {command('compact', url)}"


def after_convert(url: str, done: Conversion, *, door: str) -> str:
    """After ``convert --to``: nothing is merged yet, and what is plain stays plain for a while."""
    from pyspark_statestore.report.advice import RETAINED

    is_idle = not (done.changed_entries_count or done.removed_files_count or done.undone_batch is not None)
    how = "configure() in its session" if door == "provider" else f"checkpointLocation = merged_path({url!r})"
    start = "start the query without this package." if done.to == "stock" else f"start the query with {how}."
    if is_idle:
        return Idle(start)
    if done.to == "stock":
        return start
    if done.removed_files_count:
        return f"{start} It writes merged files again; the plain ones of the export are gone."
    said = (
        f"{start} It writes merged files from its first batch on; plain ones are read where they are, and go as Spark "
        f"retires their versions, the last after {RETAINED} batches (minBatchesToRetain). "
    )
    return f"{said}How many there are of both: {command('files', url)}"


def after_convert_store(url: str, done: StoreConversion) -> str:
    """After ``convert --store``."""
    if done.version is None:
        return Idle("start the query.")
    return f"start the query. When it runs well, remove the old store's files: {_old_partitions(url)}"


def after_export(url: str, done: Export) -> str:
    """After ``export``, in place or to a new directory."""
    if done.path != url:
        said = f"start stock Spark with checkpointLocation {done.path}. Both have one query id: run only one of them."
    else:
        drop, back = command("drop-merged", url), command("convert", url, "--to merged")
        said = f"start the query without this package. When it runs well: {drop}. The way back until then: {back}"
    return Idle(said) if done.is_idle else said


def after_drop_merged(url: str, removed: int) -> str:
    """After ``drop-merged``."""
    if not removed:
        return Idle("nothing has to be done: there are no merged files.")
    return f"start the query without this package. To merge again, stop it: {command('convert', url, '--to merged')}"


def after_repartition(url: str, done: Repartition) -> str:
    """After ``repartition``."""
    if done.batch is None:
        return Idle("start the query.")
    undo = command("undo-repartition", url)
    said = f"start the query, which needs no setting for it. To take it back before that: {undo}"
    if done.partitions < done.partitions_before:
        said += f". When the query runs well, remove the old partitions: {_old_partitions(url)}"
    return said


def after_undo_repartition(done: RepartitionUndo) -> str:
    """After ``undo-repartition``."""
    return f"start the query, which has {done.partitions:,} state partitions again."


def after_old_partitions(url: str, done: OldPartitions) -> str:
    """After ``old-partitions``."""
    if not done.removed_files_count:
        return Idle("nothing has to be done: nothing was old.")
    return f"free their space: {command('compact', url)}"


def after_sink_compact(url: str, done: SinkCompaction, *, and_remove: bool) -> str:
    """After ``sink compact``."""
    if not done.rewritten_data_files_count:
        report = command("sink report", url, "-o sink.html")
        joined = f"nothing was joined. What there is, and why: {report}"
        if done.removed_files_count:
            return joined
        return Idle(joined if done.failed_data_files_count else f"nothing has to be done. What there is: {report}")
    if and_remove:
        return f"run the same command again in a few days: it removes what this one has replaced. {_NO_MORE}"
    return f"in three days, remove what was replaced: {command('sink orphans', url, '--no-dry-run')}. {_NO_MORE}"


def after_sink_publish(url: str, done: SinkPublication) -> str:
    """After ``sink publish``."""
    if not done.published_data_files_count:
        return Idle("nothing has to be done: nothing waits.")
    return f"see what readers see: {command('sink files', url)}"


def after_sink_orphans(url: str, done: SinkOrphanRemoval) -> str:
    """After ``sink orphans``."""
    if not done.removed_files_count:
        return Idle("nothing has to be done: there are no orphans of that age.")
    return f"see that all is there: {command('sink verify', url)}"


def after_sink_verify(url: str, done: SinkVerification) -> str:
    """After ``sink verify``."""
    if not done.is_clean:
        return f"restore the files that are missing from a copy, then: {command('sink verify', url)}"
    return "nothing has to be done." if done.repaired else Idle("nothing has to be done.")


def _old_partitions(url: str) -> str:
    return command("old-partitions", url, "--no-dry-run")
