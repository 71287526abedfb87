package io.pyspark.statestore.log;

import java.util.HashSet;
import java.util.Set;

/**
 * Who unlinks which file, so that a thousand executors do not all ask for the same: its writer, while that one seems to
 * be alive; else one of those who do, the same one in everybody's eyes. It only saves calls: two who both think that a
 * file is theirs do no harm, and one that nobody takes is anybody's after {@code closedAfter}.
 */
final class Responsibility {
  private final long self;
  private final Set<Long> alive = new HashSet<>();
  private final Clocks.Moment now;
  private final long closedAfterMs;

  /** As of now: alive is who has a file that he may still append to. */
  Responsibility(LogContext context) {
    this.self = context.writerId();
    this.now = context.now();
    this.closedAfterMs = context.options().closedAfterMs();
    alive.add(self);
    for (MergedFile file : context.index().files()) {
      if (file.writer() == MergedFile.Writer.OTHER && !file.isClosed(now, closedAfterMs)) {
        alive.add(file.writerId());
      }
    }
  }

  /** Whether this process is to unlink a file in which nothing has lived since {@code deadSinceMs}. */
  boolean isMine(MergedFile file) {
    if (file.deadSinceMs() > 0 && now.monotonicMs() - file.deadSinceMs() >= closedAfterMs) {
      return true;
    }
    return alive.contains(file.writerId()) ? file.writerId() == self : elected(file.name()) == self;
  }

  /** The highest hash wins, so everybody elects the same, and one process's coming or going moves few files. */
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
