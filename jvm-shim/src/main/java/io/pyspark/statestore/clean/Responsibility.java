package io.pyspark.statestore.clean;

import io.pyspark.statestore.files.Clocks;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.index.Rules;
import java.util.HashSet;
import java.util.Set;

/**
 * Says which process unlinks a file, so that a thousand executors do not all try: its writer, while that one seems to
 * be alive, or else one of the living processes, the same one in all their views. This only saves calls. Two processes
 * that both unlink a file do no harm, and a file that stays dead for {@code closedAfter} is anybody's.
 */
final class Responsibility {
  private final long self;
  private final Set<Long> alive = new HashSet<>();
  private final Rules rules;
  private final Clocks.Moment now;

  /** As of now: a process is alive if it has a file that it may still append to. */
  Responsibility(Index index, Rules rules, long writerId) {
    this.self = writerId;
    this.rules = rules;
    this.now = rules.now();
    alive.add(self);
    for (MergedFile file : index.files()) {
      if (file.writer() == MergedFile.Writer.OTHER && !rules.isClosed(file)) {
        alive.add(file.writerId());
      }
    }
  }

  /** Whether this process is to unlink a file in which nothing lives. */
  boolean isMine(MergedFile file) {
    if (file.deadSinceMs() > 0 && now.monotonicMs() - file.deadSinceMs() >= rules.options().closedAfterMs()) {
      return true;
    }
    return alive.contains(file.writerId()) ? file.writerId() == self : elected(file.name()) == self;
  }

  /** Rendezvous hashing: all elect the writer with the highest hash, and its coming or going moves few files. */
  private long elected(String name) {
    long best = self;
    long highest = Long.MIN_VALUE;
    for (long writer : alive) {
      long hash = mix(writer ^ mix(name.hashCode()));
      if (hash > highest) {
        highest = hash;
        best = writer;
      }
    }
    return best;
  }

  private static long mix(long value) {
    long z = (value ^ (value >>> 33)) * 0xff51afd7ed558ccdL;
    z = (z ^ (z >>> 33)) * 0xc4ceb9fe1a85ec53L;
    return z ^ (z >>> 33);
  }
}
