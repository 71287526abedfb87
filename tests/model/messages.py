"""What the index service and those whom it serves say to each other. Each may be lost, late or doubled."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_statestore.format import Entry
from tests.model.world import Truth


class Looks(enum.Enum):
    """What the service does before it answers."""

    NO = "answers at once"
    READS = "reads every file first"


@dataclass(frozen=True)
class Report:
    """A group is durable, or a file is sealed.

    Attributes:
        number: How many groups are before it in the file.
    """

    epoch: int
    file: str
    number: int
    entries: Sequence[Entry]
    stamp: int
    sealed: bool = False


@dataclass(frozen=True)
class Reported:
    """The answer: for each partition in the group the revision before and after."""

    report: Report
    refused: bool
    revisions: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """What is new in these partitions?

    Attributes:
        since: By partition, the revision that is known.
        gone_since: How many files were known to be gone.
        counted: For the oracle alone: what the answer has to contain.
    """

    epoch: int
    number: int
    since: Mapping[str, int | None]
    gone_since: int
    looks: Looks
    counted: Truth = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """All entries of the partitions that have changed, by file; and the files that are gone."""

    question: Question
    refused: bool = False
    highest: int = -1
    gone: Sequence[str] = ()
    gone_now: int = 0
    facts: Mapping[str, tuple[int, Mapping[str, Sequence[Entry]]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Left:
    """A file was given up."""

    epoch: int
    file: str


Message = Report | Question | Left
Reply = Reported | Answer
