"""What the simulated processes abide by. All on is what is guaranteed, one off a bug to find."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Numbers in comments are those of docs/guarantees.md."""

    take_over_refreshes: bool = True  # 3
    deletes_kill_what_they_saw: bool = True  # 4: else a tombstone has a fresh stamp
    copies_keep_their_key: bool = True  # 5: else a relocated segment has a fresh stamp
    carries_tombstones: bool = True  # 6
    reads_the_whole_index: bool = True  # 6
    deletes_are_durable_first: bool = True  # 6: what counts as dead is dead for those who come after a crash
    pins_are_honoured: bool = True  # 6: what a fork needs stays
    pins_are_listed_last: bool = True  # after all that an unlink rests on, not with the view
    forks_announce: bool = True  # a fork pins everything before it looks
    forks_are_timely: bool = True  # an empty pin counts for a time only
    absences_are_counted: bool = True  # a fork that is not there was not there for long, whatever the age of its pin
    forks_keep_what_lives: bool = True  # a pin that takes the place of another names what the fork still reads
    own_pins_come_first: bool = True  # what gets a second path is pinned before it has one
    own_pins_are_timely: bool = True  # a pin that nothing seems to need counts for a time only
    own_pins_wait: bool = True  # for that time: what needs it may not be seen yet
    own_pins_are_needed: bool = True  # what second paths lead to stays
    highest_stamp_stays: bool = True  # 6, for 3: stamps never go backwards
    leaves_idle_files: bool = True  # 7: a writer does not append to a file that others may count as closed
    late_flushes_fail: bool = True  # 7
    closed_is_confirmed: bool = True  # 7: by a read at the end of the time
    has_relocation_markers: bool = True  # relocation says beforehand what it is about to do
    late_relocations_are_thrown_away: bool = True  # a marker counts for a time only
    total_order: bool = True  # of copies: two cleaners never rely on each other's
    drops_after_complete_refresh: bool = True  # a tombstone is dropped where all is seen, not after a mere listing
    knows_before_it_watches: bool = True  # a tombstone that is first read in a refresh may be younger than its listing
    refresh_starts_again: bool = True  # where a listed file is gone when it is opened
    index_only_is_a_cache: bool = True  # what an index-only file says of a file is no fact of its own
