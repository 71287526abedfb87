"""What to do about a file sink: every rule by which its report gives advice, in this one place.

docs/file-sink.md says what each verb does and when it is safe; docs/report.md lists the rules.
"""

from __future__ import annotations

import datetime
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark_statestore import rendering
from pyspark_statestore.conf import SINK_OPTIONS
from pyspark_statestore.report.advice import LEVELS, Advice

TARGET_FILE_SIZE = int(SINK_OPTIONS["targetFileSize"].parse(SINK_OPTIONS["targetFileSize"].default))
"""Bytes. A listed file below this is small, unless the query has another ``targetFileSize``."""

WORTH_JOINING = 2.0
"""Small files are worth joining where that leaves less than one of so many."""

FEW = 10
"""So few files cost nobody anything."""

IDLE = datetime.timedelta(hours=1)
"""A query that has committed a batch since then may be running; ``publish`` refuses as long."""

_PAGE = "docs/file-sink.md"


@dataclass(frozen=True)
class SinkFacts:
    """The figures that the rules look at.

    Attributes:
        url: The sink's URL.
        small_files: Listed files below :data:`TARGET_FILE_SIZE`.
        small_bytes: Their size.
        joined_files: About how many files they would be if those of each partition value were joined.
        young_files: The small files of the last fourteen days before the sink's newest one, which ``compact`` leaves
            alone unless it is told otherwise.
        waiting_files: Files whose rows wait to be published.
        idle_for: How long ago the sink's list changed; None where the file system does not say.
        damages: Listed or waiting files that are not as the list says, and gaps in the list.
        unlisted: Files that no reader sees.
        orphans: Those of them, and of what attempts have left, that are old enough to be removed; None where nobody
            may say, since the list names files in other directories.
        orphan_bytes: Their size.
    """

    url: str
    small_files: int = 0
    small_bytes: int = 0
    joined_files: int = 0
    young_files: int = 0
    waiting_files: int = 0
    idle_for: datetime.timedelta | None = None
    damages: int = 0
    unlisted: int = 0
    orphans: int | None = 0
    orphan_bytes: int = 0

    @property
    def is_fragmented(self) -> bool:
        """Whether joining is worth it."""
        return self.small_files > FEW and self.small_files >= WORTH_JOINING * self.joined_files

    def command(self, verb: str, *options: str) -> str:
        """A command line about this sink."""
        return " ".join(["pyspark-statestore sink", verb, shlex.quote(self.url), *options])

    def python(self, call: str) -> str:
        """A call of a method of this sink."""
        return f"Sink({self.url!r}).{call}"


def joined_estimate(sizes: list[int]) -> int:
    """How many files the small ones of a partition value become, at most."""
    return math.ceil(sum(sizes) / TARGET_FILE_SIZE)


def sink_advice(facts: SinkFacts) -> tuple[Advice, ...]:
    """Returns what is to be done about a sink, the most urgent first."""
    found = [advice for rule in (_damage, _join, _publish, _orphans) for advice in rule(facts)]
    return tuple(sorted(found, key=lambda advice: list(LEVELS).index(advice.level)))


def _damage(facts: SinkFacts) -> Iterator[Advice]:
    if not facts.damages:
        return
    why = f"{rendering.counted(facts.damages, 'damage')}: files that Spark's list names are missing or have another "
    why += "size, "
    why += "or the list has a gap. Readers fail there, or read wrong rows. The command names each."
    commands = (facts.command("verify"),)
    python = (facts.python("verify().problems"),)
    yield Advice("sink-damage", "act", "Find out what is missing", why, commands, python, _PAGE)


def _join(facts: SinkFacts) -> Iterator[Advice]:
    if not facts.is_fragmented:
        return
    why = f"{facts.small_files:,} files of {rendering.size(facts.small_bytes)} are smaller than "
    why += f"{rendering.size(TARGET_FILE_SIZE)}. Joined, they are about {facts.joined_files:,}, and each row is read "
    why += "once, before and after, by those who go by Spark's list. Who reads directories (a glob, PyArrow, Trino, "
    why += "DuckDB) reads the joined files, too, until --and-remove or the command orphans removes them. "
    if facts.young_files:
        why += f"{facts.young_files:,} of them are of the last fourteen days and stay, for streams that read this "
        why += "sink. Where none does, give --older-than 0s. "
    why += "With configure(builder, sink=True) the query makes no new ones."
    commands = [facts.command("compact", "--dry-run"), facts.command("compact")]
    if facts.young_files:
        commands.append(facts.command("compact", "--older-than 0s"))
    python = ("spark = configure(SparkSession.builder, sink=True).getOrCreate()", facts.python("compact(spark=spark)"))
    yield Advice("sink-join", "act", "Join small files", why, tuple(commands), python, _PAGE)


def _publish(facts: SinkFacts) -> Iterator[Advice]:
    if not facts.waiting_files:
        return
    why = (
        f"The rows of {rendering.counted(facts.waiting_files, 'file')} wait to be published (maxDelay), and no reader "
    )
    why += "sees them. The next batch after the delay publishes them. "
    if facts.idle_for is None or facts.idle_for < IDLE:
        why += "Nothing is to be done while the query runs."
        yield Advice("sink-waiting", "fine", "Rows wait", why, (facts.command("waiting"),), (), _PAGE)
        return
    why += f"The last batch was {rendering.duration(facts.idle_for)} ago. Where the query has ended for good, publish "
    why += "them; "
    why += "never do so while it runs, since rows could be there twice."
    commands = (facts.command("publish", "--dry-run"), facts.command("publish"))
    python = ("spark = configure(SparkSession.builder, sink=True).getOrCreate()", facts.python("publish(spark=spark)"))
    yield Advice("sink-waiting", "look", "Publish rows that wait", why, commands, python, _PAGE)


def _orphans(facts: SinkFacts) -> Iterator[Advice]:
    if not facts.orphans:
        return
    why = f"{rendering.counted(facts.orphans, 'file')} of {rendering.size(facts.orphan_bytes)} are seen by no "
    why += "reader that goes by Spark's list, and are "
    why += "older than three days: batches that failed have left them, or compact has replaced them. Who reads "
    why += "directories sees the rows of these twice. Do not remove them "
    why += "where a batch job has written to this directory and its _SUCCESS is not there any more."
    commands = (facts.command("orphans"), facts.command("orphans", "--no-dry-run"))
    python = (facts.python("remove_orphan_files(dry_run=False)"),)
    yield Advice("sink-orphans", "look", "Remove files that no reader sees", why, commands, python, _PAGE)
