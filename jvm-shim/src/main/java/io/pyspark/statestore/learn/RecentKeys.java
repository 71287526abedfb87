package io.pyspark.statestore.learn;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.LongSupplier;

/** Remembers which refresh or question serves a freshness key, so that all tasks of one stage share it. */
public final class RecentKeys {
  private static final int REMEMBERED = 256;

  private final Map<FreshnessKey, Long> servedBy =
      new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<FreshnessKey, Long> eldest) {
          return size() > REMEMBERED;
        }
      };

  /**
   * Returns the number of the first refresh that serves all of these keys.
   *
   * @param begun number of the newest that has begun: a key that is asked for the first time needs the next one
   */
  public synchronized long needed(LongSupplier begun, FreshnessKey... keys) {
    long needed = 0;
    for (FreshnessKey key : keys) {
      needed = Math.max(needed, servedBy.computeIfAbsent(key, k -> begun.getAsLong() + 1));
    }
    return needed;
  }
}
