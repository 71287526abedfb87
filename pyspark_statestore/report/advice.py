"""What to do about a checkpoint: every rule by which a report gives advice, in this one place.

The limits are those by which executors and the driver work themselves, and what docs/keep-it-small.md says. Each rule
looks at figures that others have read, and needs only some of them: of an overview of many checkpoints, the summaries
are known and nothing else. docs/report.md lists the rules.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

from pyspark_statestore import rendering
from pyspark_statestore.conf import OPTIONS
from pyspark_statestore.log.restart import fork_of

LEVELS = MappingProxyType({"act": "Do this", "look": "Look into it", "fine": "Good to know"})
"""How urgent advice is, the most urgent first, and how a page says so."""

MOST_AMPLIFICATION = float(OPTIONS["maxSpaceAmplification"].default)
"""Executors keep a checkpoint below this, unless the query sets another limit."""

LITTLE = 1 << 20
"""Bytes. Less garbage than this is left alone, and so little state shows nothing about a query."""

MOST_OPENS = 20
"""The driver writes an index-only file where a start would open more files (the jar's ``Consolidation.MOST_OPENS``)."""

MANY_SMALL = 200
"""So many small files are joined (the jar's ``SizeTiers.MANY``)."""

SMALL_FILE = int(OPTIONS["maxFileSize"].parse(OPTIONS["maxFileSize"].default)) // 4
"""Bytes. A merged file is small up to a quarter of ``maxFileSize``."""

RETAINED = 100
"""Versions that Spark keeps (``spark.sql.streaming.minBatchesToRetain``), unless the query sets another number."""

SKEWED = 4.0
"""A partition of more than so many times the average has skewed keys."""

MOSTLY = 2.0
"""Changelogs of more than so many times the bytes of snapshots are most of a state."""

LARGE_HEAP = 1 << 30
"""Bytes of compressed snapshots. Executors may have no room for so many rows, several times as large there."""

PLAIN_FILE = 1 << 20
"""Bytes. A plain state file below this is called small."""

MERGED_PROVIDERS = "io.pyspark.statestore."
"""How the names of the classes begin that keep merged state, in the offset log."""


@dataclass(frozen=True)
class Advice:
    """Something to do.

    Attributes:
        rule: The name of the rule that says so, which never changes, such as ``compact``.
        level: One of :data:`LEVELS`.
        title: What to do, in a few words.
        why: The figures that say so, and what will come of it.
        commands: Command lines to paste.
        python: The same in Python.
        page: The page of the documentation that says more; empty for none.
    """

    rule: str
    level: str
    title: str
    why: str
    commands: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    page: str = ""


class PlannedCompaction(Protocol):
    """What a dry run of ``compact`` returns, as far as it is needed here."""

    @property
    def rewritten_files_count(self) -> int:
        """Files whose live segments would be copied."""

    @property
    def removed_files_count(self) -> int:
        """Files that would be unlinked."""

    @property
    def reclaimed_bytes_count(self) -> int:
        """Their size in bytes."""

    @property
    def added_bytes_count(self) -> int:
        """Bytes of the files that would be written in their place."""


def _nothing_planned() -> PlannedCompaction | None:
    return None


@dataclass(frozen=True)
class CheckpointFacts:
    """The figures that the rules look at. None stands for what is not known.

    Attributes:
        url: The checkpoint's URL.
        summary: The row of the table ``summary``.
        is_running: Whether something was written so lately that its query counts as running.
        is_exported: Whether the merged files were exported, and do not count any more.
        needs_path_door: Whether an operator is a ``transformWithState``.
        cold_opens: Merged files that a process opens when it starts.
        small_file_count: Merged files of at most :data:`SMALL_FILE` in which something lives.
        unsealed_count: Merged files that their writers have not ended.
        version_count: Versions of the operator that has the most.
        log_bytes: Bytes of live changelogs and deltas.
        base_bytes: Bytes of live snapshots and SSTs.
        heap_bytes: Bytes of the newest snapshots of heap stores.
        gaps: What stores lack of versions that they should have.
        skew: The partition that stands out most: operator, partition, and its bytes over the operator's average.
        planned: Makes a dry run of ``compact``. It is asked only where that matters, since it reads all indexes.
    """

    url: str
    summary: Mapping[str, Any]
    is_running: bool | None = None
    is_exported: bool = False
    needs_path_door: bool = False
    cold_opens: int | None = None
    small_file_count: int | None = None
    unsealed_count: int | None = None
    version_count: int | None = None
    log_bytes: int = 0
    base_bytes: int = 0
    heap_bytes: int = 0
    gaps: tuple[str, ...] = ()
    skew: tuple[int, int, float] | None = None
    planned: Callable[[], PlannedCompaction | None] = field(default=_nothing_planned, repr=False)

    @property
    def dead_bytes(self) -> int:
        """Bytes of merged files that are no live segments."""
        return int(self.summary["file_size_in_bytes"] - self.summary["live_bytes"])

    @property
    def is_stock(self) -> bool:
        """Whether all state is in plain files, which no export has written."""
        return not self.summary["file_count"] and bool(self.summary["plain_file_count"]) and not self.is_exported

    @property
    def is_converted(self) -> bool:
        """Whether all state is in plain files, and the next batch writes merged ones."""
        return self.is_stock and str(self.summary.get("provider")).startswith(MERGED_PROVIDERS)

    @property
    def is_amplified(self) -> bool:
        """Whether more is kept for each live byte than executors allow."""
        return bool(self.summary["file_size_in_bytes"] > MOST_AMPLIFICATION * self.summary["live_bytes"])

    @property
    def is_bloated(self) -> bool:
        """Whether that is so much that it matters."""
        return self.is_amplified and self.dead_bytes >= LITTLE

    @cached_property
    def plan(self) -> PlannedCompaction | None:
        """What a compaction would do, where the checkpoint is bloated and that is known."""
        return self.planned() if self.is_bloated else None

    @property
    def wants_compaction(self) -> bool:
        """Whether a compaction would help. Of tiny files in the state, most bytes are their index, which stays."""
        if self.plan is None or self.unsealed_count:
            return self.is_bloated
        return self.plan.reclaimed_bytes_count - self.plan.added_bytes_count >= LITTLE

    def command(self, verb: str, *options: str) -> str:
        """A command line about this checkpoint."""
        return " ".join(["pyspark-statestore", verb, shlex.quote(self.url), *options])

    def python(self, call: str) -> str:
        """A call of a method of this checkpoint."""
        return f"Checkpoint({self.url!r}).{call}"


def checkpoint_advice(facts: CheckpointFacts) -> tuple[Advice, ...]:
    """Returns what is to be done about a checkpoint, the most urgent first."""
    found = [advice for rule in _RULES for advice in rule(facts)]
    return tuple(sorted(found, key=lambda advice: list(LEVELS).index(advice.level)))


def merged_estimate(plain_bytes: int) -> int:
    """About how many merged files a state of so many bytes would be: full ones, and those that are being written."""
    option = OPTIONS["maxFileSize"]
    return math.ceil(plain_bytes / int(option.parse(option.default))) + int(OPTIONS["maxOpenFiles"].default)


def _restart(facts: CheckpointFacts) -> Iterator[Advice]:
    reason = facts.summary.get("not_restorable")
    if not reason:
        return
    committed, version = facts.summary["committed_version"], facts.summary["restorable_version"]
    if committed is None:
        why = f"Whether the query can start cannot be found out: {reason}"
    else:
        why = f"Batch {committed - 1:,}, the last that was committed, has left version {committed:,}, and that cannot "
        why += f"be restored: {reason}. A query that starts here fails. Restore the files from a copy, if there is "
        why += "one; verify names what is missing. "
    commands, python = [facts.command("verify")], [facts.python("maintenance.verify()")]
    title = "Restore files: the query cannot go on"
    if version is None:
        why += "No older version is known that can be restored."
    else:
        title = "Restore files, or go back to an older version"
        why += f"Or go back to version {version:,}, the newest that can be restored, in a fork. It leaves all that is "
        why += f"here as it is, and its query does the batches from {version:,} on again, for its sink, too."
        commands = [f"pyspark-statestore {fork_of(facts.url, version)}", *commands]
        python = [facts.python(f"fork({f'{facts.url}-from-{version}'!r}, version={version})"), *python]
    yield Advice("restart", "act", title, why, tuple(commands), tuple(python), "docs/operations.md")


def _gaps(facts: CheckpointFacts) -> Iterator[Advice]:
    if not facts.gaps:
        return
    more = f" So it is with {len(facts.gaps) - 1:,} more stores." if len(facts.gaps) > 1 else ""
    why = f"Among the versions that are kept some are missing: {facts.gaps[0]}.{more} The query cannot go back to "
    why += "them. Restore the file from a copy, if there is one."
    commands = (facts.command("verify"), facts.command("versions"))
    title = "Find out why versions are missing"
    yield Advice("version-gap", "look", title, why, commands, (), "docs/is-it-sound.md")


def _convert(facts: CheckpointFacts) -> Iterator[Advice]:
    if not facts.is_stock:
        return
    count, size = facts.summary["plain_file_count"], facts.summary["plain_bytes"]
    if facts.is_converted:
        why = f"The query is converted, and has written nothing since. {rendering.counted(count, 'plain file')} of "
        why += f"{rendering.size(size)} are read where they are. From its first batch on it writes merged files; the "
        why += f"plain ones go as Spark retires their versions, the last after {RETAINED} batches "
        why += "(minBatchesToRetain). The command counts both kinds."
        start = "spark = configure(SparkSession.builder).getOrCreate()"
        title = "Start the converted query"
        yield Advice("converted", "look", title, why, (facts.command("files"),), (start,), "docs/migrate.md")
        return
    why = f"Stock Spark keeps this state in {rendering.counted(count, 'plain file')} of {rendering.size(size)}, and "
    why += (
        f"writes more with each batch. Merged, the same bytes are about {merged_estimate(size)} files for one process. "
    )
    if facts.needs_path_door:
        why += "The query uses transformWithState, which takes the path door: restart it on a merged path."
        python = ("spark = configure(SparkSession.builder, mode='path').getOrCreate()", f"merged_path({facts.url!r})")
        yield Advice("convert", "act", "Go on with merged files", why, (), python, "docs/turn-it-on.md")
        return
    why += "Stop the query, convert, and restart it with configure. No state is touched, and export leads back."
    commands = (facts.command("convert", "--to merged --dry-run"), facts.command("convert", "--to merged"))
    python = (facts.python("convert('merged')"), "spark = configure(SparkSession.builder).getOrCreate()")
    yield Advice("convert", "act", "Go on with merged files", why, commands, python, "docs/migrate.md")


def _compact(facts: CheckpointFacts) -> Iterator[Advice]:
    if not facts.wants_compaction:
        return
    size = facts.summary["file_size_in_bytes"]
    why = f"{rendering.size(facts.dead_bytes)} of {rendering.size(size)} in merged files are dead: more than "
    why += f"{MOST_AMPLIFICATION:g} bytes are kept for each live one. "
    if facts.is_running:
        why += "The query counts as running, and its executors clean up by themselves. Right after processes were "
        why += "killed, this is normal for ten minutes (closedAfter). If it stays so, maintenance does not run, or "
        why += "fails: look at the metrics failedDeletes and spaceAmplification. Compaction is safe meanwhile. "
    elif facts.is_running is False:
        why += "Nobody has written here lately. While a query is stopped, nothing cleans up. "
    commands = [facts.command("compact", "--dry-run"), facts.command("compact")]
    if facts.plan is not None:
        removed, freed = facts.plan.removed_files_count, rendering.size(facts.plan.reclaimed_bytes_count)
        why += f"By a dry run, compact would now write {rendering.size(facts.plan.added_bytes_count)} in the place of "
        why += f"{rendering.counted(removed, 'file')} of {freed}. "
    if facts.unsealed_count and facts.is_running is False:
        why += f"{rendering.counted(facts.unsealed_count, 'file')} may still be open in a process, and "
        why += "are left alone for a day. Where you know that no process of the query is alive, shorten that."
        commands.append(facts.command("compact", "--abandoned-after 10m"))
    level = "look" if facts.is_running else "act"
    python = (facts.python("maintenance.compact()"),)
    title = "Compact the merged files"
    yield Advice("compact", level, title, why.strip(), tuple(commands), python, "docs/keep-it-small.md")


def _join(facts: CheckpointFacts) -> Iterator[Advice]:
    if facts.wants_compaction or (facts.small_file_count or 0) <= MANY_SMALL:
        return
    why = f"{facts.small_file_count:,} merged files are of at most {rendering.size(SMALL_FILE)}. Object stores make a "
    why += (
        "file of each group, and listings and small reads are what costs there. compact joins small files; maintain() "
    )
    why += "does it every ten minutes."
    python = (facts.python("maintenance.compact()"), "maintain(spark)")
    commands = (facts.command("compact"),)
    yield Advice("join", "look", "Join small merged files", why, commands, python, "docs/keep-it-small.md")


def _consolidate(facts: CheckpointFacts) -> Iterator[Advice]:
    if (facts.cold_opens or 0) <= MOST_OPENS:
        return
    why = f"A process that starts opens {facts.cold_opens:,} files to learn what there is. An index-only file repeats "
    why += "the indexes of all sealed files, so that it opens one instead. "
    why += "The driver of a running query writes it by itself; for a query that is stopped, or for readers, do it here."
    python = (facts.python("maintenance.consolidate_index()"),)
    level = "look" if facts.is_running else "act"
    title = "Write an index of all files"
    yield Advice("consolidate", level, title, why, (facts.command("consolidate"),), python, "docs/keep-it-small.md")


def _versions(facts: CheckpointFacts) -> Iterator[Advice]:
    if (facts.version_count or 0) <= 2 * RETAINED:
        return
    why = f"There are files of {facts.version_count:,} versions. Spark keeps {RETAINED} (minBatchesToRetain) unless it "
    why += "is "
    why += "told otherwise: its maintenance does not keep up, or has not run yet. Look into the log for failed "
    why += "maintenance. For a stopped query, expire deletes old versions, and compact frees their bytes."
    commands = (facts.command("expire", f"--retain-last {RETAINED}"),)
    python = (facts.python(f"maintenance.expire(retain_last={RETAINED})"),)
    title = "Find out why old versions stay"
    yield Advice("versions", "look", title, why, commands, python, "docs/keep-it-small.md")


def _snapshots(facts: CheckpointFacts) -> Iterator[Advice]:
    if facts.log_bytes <= max(MOSTLY * facts.base_bytes, LITTLE):
        return
    why = f"Changelogs and deltas have {rendering.size(facts.log_bytes)}, snapshots and SSTs "
    why += f"{rendering.size(facts.base_bytes)}: snapshots are rare compared with what changes. Where a restart takes "
    why += "long, have more of them. The default is one after 10 versions."
    python = ('spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "5")',)
    title = "Most bytes are changelogs"
    yield Advice("snapshots", "fine", title, why, (), python, "docs/keep-it-small.md")


def _rocksdb(facts: CheckpointFacts) -> Iterator[Advice]:
    if facts.heap_bytes <= LARGE_HEAP:
        return
    why = f"Heap stores hold what is in {rendering.size(facts.heap_bytes)} of compressed snapshots, several times as "
    why += "large, in the memory of executors, and a start reads all of it. RocksDB holds what is used. Or "
    why += "heap.spill=auto moves to the local disk what memory has no room for."
    commands = (facts.command("convert", "--store rocksdb --dry-run"), facts.command("convert", "--store rocksdb"))
    spills = "spark = configure(SparkSession.builder, store='heap', heap_spill='auto').getOrCreate()"
    python = (facts.python("convert(store='rocksdb')"), spills)
    yield Advice("rocksdb", "fine", "Think about RocksDB", why, commands, python, "docs/reshape.md")


def _skew(facts: CheckpointFacts) -> Iterator[Advice]:
    if facts.skew is None:
        return
    operator, partition, times = facts.skew
    why = (
        f"Partition {partition} of operator {operator} has {times:.1f} times the bytes of an average one: its keys are "
    )
    why += (
        "skewed. One task then works while the others wait. Look for a key that is far more frequent than others, as "
    )
    why += "null or a default value."
    commands = (
        facts.command("top", "--by partitions"),
        facts.command("state", f"--operator {operator} --partition {partition}"),
    )
    yield Advice("skew", "look", "Spread skewed keys", why, commands, (), "docs/keep-it-small.md")


def _orphans(facts: CheckpointFacts) -> Iterator[Advice]:
    count = facts.summary["orphan_file_count"]
    if not count:
        return
    why = f"{rendering.counted(count, 'merged file')} without a whole group: processes that died have left them, and "
    why += "nothing reads them. The command removes what is older than three days."
    commands = (facts.command("orphans"), facts.command("orphans", "--no-dry-run"))
    python = (facts.python("maintenance.remove_orphan_files(dry_run=False)"),)
    yield Advice(
        "orphans", "fine", "Remove what dead processes have left", why, commands, python, "docs/keep-it-small.md"
    )


def _exported(facts: CheckpointFacts) -> Iterator[Advice]:
    if not facts.is_exported:
        return
    why = "The state was written back as plain files, which count; this page shows these. The merged files are the way "
    why += "back (convert), until drop-merged deletes them."
    if forks := facts.summary["fork_count"]:
        why += f" That refuses as long as {_forks_here(forks)}."
        yield Advice("exported", "fine", "Keep the merged files for the forks", why, (), (), "docs/migrate.md")
        return
    python = (facts.python("drop_merged(dry_run=False)"),)
    commands = (facts.command("drop-merged"), facts.command("drop-merged", "--no-dry-run"))
    title = "Delete the merged files once you are sure"
    yield Advice("exported", "fine", title, why, commands, python, "docs/migrate.md")


def _plain_left(facts: CheckpointFacts) -> Iterator[Advice]:
    count = facts.summary["plain_file_count"]
    if not facts.summary["file_count"] or not count:
        return
    why = (
        f"{rendering.counted(count, 'plain state file')} of {rendering.size(facts.summary['plain_bytes'])} beside the "
    )
    why += "merged ones are from before the query was converted. They are read where they are, and go as Spark retires "
    why += f"their versions, the last after {RETAINED} batches (minBatchesToRetain). Nothing is to be done."
    yield Advice("plain-left", "fine", "Plain files are left from before", why, (facts.command("files", "--plain"),))


def _forks_here(forks: int) -> str:
    return f"{rendering.counted(forks, 'fork')} of this checkpoint {'reads' if forks == 1 else 'read'} files here"


def _forks(facts: CheckpointFacts) -> Iterator[Advice]:
    foreign, forks = facts.summary["foreign_file_count"], facts.summary["fork_count"]
    if foreign:
        why = f"This fork reads {rendering.counted(foreign, 'file')} of other checkpoints, which have to stay. To need "
        why += "them no more, copy what lives in them."
        python = (facts.python("maintenance.compact(localize=True)"),)
        commands = (facts.command("compact", "--localize"),)
        yield Advice("fork", "fine", "Make the fork independent", why, commands, python, "docs/fork.md")
    if forks:
        which = "it is" if forks == 1 else "they are"
        why = f"{_forks_here(forks)}, and these stay until {which} made independent or released."
        yield Advice("forked", "fine", "Forks keep files here", why, (), (), "docs/fork.md")


_RULES = (
    _restart,
    _convert,
    _compact,
    _join,
    _consolidate,
    _gaps,
    _versions,
    _snapshots,
    _skew,
    _rocksdb,
    _orphans,
    _exported,
    _plain_left,
    _forks,
)
