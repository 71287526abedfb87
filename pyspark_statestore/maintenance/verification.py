"""Reads all that is alive and says what is wrong with it, beside a query that goes on writing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_statestore.inspect.scan import ATTEMPTS, always_gone
from pyspark_statestore.maintenance.damage import Damage
from pyspark_statestore.maintenance.repair import mend
from pyspark_statestore.maintenance.site import Site
from pyspark_statestore.maintenance.verifying_look import look

if TYPE_CHECKING:
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Verification:
    """What was found.

    Attributes:
        damages: What is not as it should be, repaired or not.
        notes: What is normal and may be worth knowing: what killed writers left, and versions that cannot be restored
            because of one of the damages.
        read_bytes_count: Of live segments and of plain files.
        files_count: Merged files.
        segments_count: Live segments that were read.
        versions_count: Versions of stores that were looked at, restorable or not.
        dry_run: Whether a repair was only planned.
    """

    damages: tuple[Damage, ...] = ()
    notes: tuple[Damage, ...] = ()
    read_bytes_count: int = 0
    files_count: int = 0
    segments_count: int = 0
    versions_count: int = 0
    dry_run: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether there is no damage, or none that was not repaired."""
        return all(each.repaired for each in self.damages)

    @property
    def repaired_count(self) -> int:
        """How many damages and torn tails were mended."""
        return sum(each.repaired for each in (*self.damages, *self.notes))

    def to_arrow(self) -> pa.Table:
        """Returns a row for each damage and each note."""
        rows = [("damage", each) for each in self.damages] + [("note", each) for each in self.notes]
        columns = {
            "severity": pa.array([severity for severity, _ in rows], pa.string()),
            **{
                name: pa.array([getattr(each, name) for _, each in rows], type_)
                for name, type_ in (
                    ("kind", pa.string()),
                    ("path", pa.string()),
                    ("offset", pa.int64()),
                    ("logical_path", pa.string()),
                    ("reason", pa.string()),
                    ("is_repairable", pa.bool_()),
                    ("repaired", pa.bool_()),
                )
            },
        }
        return pa.table(columns)


def verify(
    site: Site,
    *,
    repair: bool = False,
    dry_run: bool = False,
    spark: SparkSession | None = None,
    callback: Callback | None = None,
) -> Verification:
    """Looks for damage, and looks again before it says so.

    A query may go on writing, and maintenance may go on moving and unlinking files. What seems to be damage is
    therefore looked at once more, from the beginning; only what two looks in a row have found is said.

    Args:
        site: Of the checkpoint.
        repair: Mend what can be mended without losing anything.
        dry_run: Only say what would be mended.
        spark: Reads in Spark tasks instead of in this process.
        callback: Told how many bytes there are to read, and of those that were.

    Raises:
        StateStoreFilesError: The checkpoint cannot be read at all; or it cannot be written, and was to be repaired.
    """
    found = _verified(site, spark, callback)
    if found.damages or found.notes:
        damages, notes = mend(site, found.damages, found.notes, dry_run=dry_run or not repair)
        found = replace(found, damages=damages, notes=notes)
    return replace(found, dry_run=repair and dry_run)


def _verified(site: Site, spark: SparkSession | None, callback: Callback | None) -> Verification:
    first = now = look(site, None, (), spark, callback)
    read_bytes = now.read_bytes
    confirmed: list[Damage] = []
    for _ in range(ATTEMPTS):
        # Of what has just been read nothing is in doubt but what seemed to be wrong.
        if len(confirmed) == len(now.damages) and now.suspects <= {each.logical_path for each in confirmed}:
            break
        before = {_identity(each) for each in now.damages}
        now = look(site, now.suspects, now.damages, spark)
        read_bytes += now.read_bytes
        confirmed = [each for each in now.damages if _identity(each) in before]
    else:
        if now.unread:
            raise always_gone(site.directory)
    damages, notes = _once(confirmed, now.notes)
    return Verification(tuple(damages), tuple(notes), read_bytes, now.files, first.segments, now.versions)


def _identity(found: Damage) -> tuple[object, ...]:
    return found.kind, found.path, found.offset, found.logical_path


def _once(confirmed: list[Damage], notes: list[Damage]) -> tuple[list[Damage], list[Damage]]:
    """Each once; notes of what is damage already are left out."""
    damages = list({_identity(each): each for each in confirmed}.values())
    known = {_identity(each) for each in damages}
    return damages, [each for key, each in {_identity(each): each for each in notes}.items() if key not in known]
