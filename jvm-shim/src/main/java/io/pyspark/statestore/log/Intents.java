package io.pyspark.statestore.log;

import java.io.IOException;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Announcements of relocations. Whoever copies segments first creates an empty file that says so, then looks at what
 * lives, and deletes the announcement when the copies are durable. While one is there that may be older than a
 * deletion, the deletion's tombstone is kept: a copy of what it kills may still appear (rules 5 and 6).
 *
 * <p>A relocator that died leaves its announcement; it counts for {@code closedAfter} from when it was first seen.
 */
final class Intents {
  private static final Logger LOG = LoggerFactory.getLogger(Intents.class);

  private final LogContext context;
  private final Map<String, Seen> seen = new ConcurrentHashMap<>();
  /** Those of this process that are under way: nothing of its own comes between their copies and their end. */
  private final Set<String> underWay = ConcurrentHashMap.newKeySet();

  private record Seen(long firstRefresh, long firstMs) {}

  Intents(LogContext context) {
    this.context = context;
  }

  /** A relocation of this process. */
  final class Intent {
    private final String name;
    private final long sinceNanos = System.nanoTime();
    /** A write that has failed may or may not have brought copies into a file. */
    private boolean inDoubt;

    private Intent(String name) {
      this.name = name;
    }

    /** Whether copies may still be written: others stop waiting for them after {@code closedAfter}. */
    boolean isTimely() {
      return (System.nanoTime() - sinceNanos) / 1_000_000 < context.options().closedAfterMs() / 2;
    }

    /** Writes copies. */
    void write(Write copies) throws IOException {
      inDoubt = true;
      copies.run();
      inDoubt = false;
    }

    /**
     * Ends it. Where copies may still appear the announcement stays, for as long as a dead process's; else all that were
     * written are durable.
     */
    void end() {
      try {
        if (!inDoubt) {
          context.storage().delete(name);
        }
      } catch (IOException | RuntimeException e) {
        context.metrics().deleteFailed();
        LOG.warn("{} of {} could not be deleted; cleaning does it after closedAfter", name, context.checkpoint(), e);
      }
      underWay.remove(name);
    }
  }

  /** Makes relocated segments durable. */
  interface Write {
    void run() throws IOException;
  }

  /** Announces a relocation; what it copies must be looked up after this. */
  Intent announce() throws IOException {
    String name = context.nextFileName(context.nowMs()).replaceFirst("\\.merged$", Storage.INTENT_SUFFIX);
    underWay.add(name);
    try {
      context.storage().createEmpty(name);
    } catch (IOException | RuntimeException | Error e) {
      underWay.remove(name);
      throw e;
    }
    return new Intent(name);
  }

  /**
   * Takes note of a listing.
   *
   * @param complete whether whatever those who have ended did copy has been read, too
   */
  void listed(Set<String> names, long refresh, boolean complete) {
    if (complete) {
      seen.keySet().retainAll(names);
    }
    for (String name : names) {
      if (!underWay.contains(name)) {
        seen.putIfAbsent(name, new Seen(refresh, context.nowMs()));
      }
    }
  }

  /** Whether any announcement of others, or a left-over one of this process, has been seen. */
  boolean any() {
    return !seen.isEmpty();
  }

  /** Whether every relocation that was under way when a refresh listed has ended. */
  boolean noneSince(long refresh) {
    long now = context.nowMs();
    return seen.values().stream().noneMatch(s -> s.firstRefresh <= refresh && !isOver(s, now));
  }

  /** Deletes what dead relocators have left. */
  void removeLeftOver() {
    long now = context.nowMs();
    seen.forEach((name, s) -> {
      if (isOver(s, now)) {
        try {
          context.storage().delete(name);
          seen.remove(name);
        } catch (IOException | RuntimeException e) {
          context.metrics().deleteFailed();
          LOG.warn("{} of {} could not be deleted and is tried again", name, context.checkpoint(), e);
        }
      }
    });
  }

  private boolean isOver(Seen s, long now) {
    return now - s.firstMs >= context.options().closedAfterMs();
  }
}
