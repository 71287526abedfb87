"""What the index service and the processes that it serves abide by, besides what everybody does."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.rules import Rules


@dataclass(frozen=True)
class ServedRules(Rules):
    """Of docs/guarantees.md, "What does the index service add?". One off is a bug to find."""

    reports_before_acknowledging: bool = True
    failed_reports_end_the_file: bool = True  # else the process goes on appending to it
    asks_at_every_load: bool = True  # else only for a partition that it does not serve yet
    revisions_before_are_compared: bool = True  # else a report's answer makes its sender think that it knows all
    stamps_are_observed: bool = True  # by either side of a message
    epochs_are_checked: bool = True
    gone_files_are_removed: bool = True  # by those who are served, too
    late_answers_are_dropped: bool = True  # else one is applied after a newer one
    misses_are_asked_for: bool = True  # a reader that misses a file lets the service read all files, and reads again
    gone_files_are_refused: bool = True  # else a report brings a file back
    a_run_begins_with_a_look: bool = True
    strangers_are_read: bool = True  # else the tails of those who do not report are not
    ends_are_read: bool = True  # else a file counts as closed when its writer has reported nothing for long
    only_the_service_unlinks: bool = True
    reports_are_settled: bool = True  # a tombstone is not proven unneeded while a report may be under way
    ended_markers_are_settled: bool = True  # nor right after a marker went
    moved_content_is_looked_for: bool = True  # where a file is gone in which something lived
    gone_at_the_end: bool = True  # a refresh that begins again has removed nothing yet
    looks_after_the_marker: bool = True  # who relocates asks after it has made its marker
    originals_are_looked_for: bool = True  # and copies only out of files that exist then
    copies_are_reported: bool = True  # before the marker goes
    failed_copies_keep_their_marker: bool = True
