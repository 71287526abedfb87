package io.pyspark.statestore.log;

import java.io.IOException;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Announcements of relocations. Whoever copies segments first creates an empty file that says so, then looks at what
 * lives, and deletes the announcement when the copies are durable. While one is there that may be older than a
 * deletion, the deletion's tombstone is kept: a copy of what it kills may still appear (rules 5 and 6).
 *
 * <p>A relocator that died leaves its announcement; it counts for {@code closedAfter} from when it was first seen. One
 * that lives renews it, however long its file system takes to make a copy visible.
 */
final class RelocationMarkers {
  private static final Logger LOG = LoggerFactory.getLogger(RelocationMarkers.class);

  private final LogContext context;
  private final Map<String, Seen> seen = new ConcurrentHashMap<>();
  /** Those of this process that are under way: nothing of its own comes between their copies and their end. */
  private final Set<String> underWay = ConcurrentHashMap.newKeySet();

  private final Executor threads;
  /** When the newest listing began. */
  private volatile long listedMs;

  /**
   * An announcement that is there.
   *
   * @param firstRefresh that has shown it
   * @param modified when it was made or renewed, as the file system says
   * @param sinceMs when it was first seen like that
   */
  private record Seen(long firstRefresh, long modified, long sinceMs) {}

  /** @param threads to renew markers in, which may hang as long as the file system does */
  RelocationMarkers(LogContext context, Executor threads) {
    this.context = context;
    this.threads = threads;
  }

  /** A relocation of this process. */
  final class Marker {
    private final String name;
    private final Clocks.Stopwatch sinceMade = new Clocks.Stopwatch();
    private volatile Clocks.Stopwatch sinceRenewed = sinceMade;
    private boolean ended;
    /** A write that has failed may or may not have brought copies into a file. */
    private boolean inDoubt;

    private Marker(String name) {
      this.name = name;
    }

    /** Whether copies may still be begun. */
    boolean isTimely() {
      return sinceMade.elapsedMs() < context.options().closedAfterMs() / 2;
    }

    /**
     * Writes copies.
     *
     * @throws IOException also where they became visible when nobody may have waited for them any more
     */
    void write(Write copies) throws IOException {
      inDoubt = true;
      copies.run();
      if (!isHeeded()) {
        throw new IOException("Copies became visible when their announcement " + name + " had not been renewed for "
            + sinceRenewed.elapsedMs() + " ms; nothing is unlinked on the strength of them");
      }
      inDoubt = false;
    }

    private void create() throws IOException {
      context.storage().createEmpty(name);
      renewLater();
    }

    private void renewLater() {
      CompletableFuture.delayedExecutor(context.options().closedAfterMs() / 4, TimeUnit.MILLISECONDS, threads)
          .execute(this::renew);
    }

    private synchronized void renew() {
      // One that others may have given up already would promise what it cannot keep.
      if (ended || !isHeeded()) {
        return;
      }
      Clocks.Stopwatch begun = new Clocks.Stopwatch();
      try {
        context.storage().renew(name);
        sinceRenewed = isHeeded() ? begun : sinceRenewed;
      } catch (IOException | RuntimeException e) {
        LOG.warn("{} of {} could not be renewed and is tried again", name, context.checkpoint(), e);
      }
      renewLater();
    }

    /** Whether others wait for its copies: for {@code closedAfter}, of which a part is left for clocks that differ. */
    private boolean isHeeded() {
      return sinceRenewed.elapsedMs() < context.options().closedAfterMs() * 3 / 4;
    }

    /**
     * Ends it. Where copies may still appear the announcement stays, for as long as a dead process's; else all that were
     * written are durable.
     */
    synchronized void end() {
      ended = true;
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
  Marker make() throws IOException {
    String name = context.nextFileName(context.nowMs()).replaceFirst("\\.merged$", Storage.RELOCATING_SUFFIX);
    underWay.add(name);
    Marker marker = new Marker(name);
    try {
      marker.create();
    } catch (IOException | RuntimeException | Error e) {
      underWay.remove(name);
      throw e;
    }
    return marker;
  }

  /**
   * Takes note of a listing.
   *
   * @param markers by name, when each was made or renewed
   * @param complete whether whatever those who have ended did copy has been read, too
   * @param beganMs when the listing began: copies that came later may be missing in what was read
   */
  void listed(Map<String, Long> markers, long refresh, boolean complete, long beganMs) {
    if (complete) {
      seen.keySet().retainAll(markers.keySet());
    }
    long now = context.now().monotonicMs();
    markers.forEach((name, modified) -> {
      if (!underWay.contains(name)) {
        seen.merge(name, new Seen(refresh, modified, now), (known, found) ->
            known.modified == modified ? known : new Seen(known.firstRefresh, modified, now));
      }
    });
    listedMs = beganMs;
  }

  /** Whether any announcement of others, or a left-over one of this process, has been seen. */
  boolean any() {
    return !seen.isEmpty();
  }

  /** Whether every relocation that was under way when a refresh listed has ended. */
  boolean noneSince(long refresh) {
    return seen.values().stream().noneMatch(s -> s.firstRefresh <= refresh && !isOver(s));
  }

  /** Deletes what dead relocators have left. */
  void removeLeftOver() {
    seen.forEach((name, s) -> {
      if (isOver(s)) {
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

  private boolean isOver(Seen s) {
    return listedMs - s.sinceMs >= context.options().closedAfterMs();
  }
}
