package io.pyspark.statestore.tab;

import java.util.Arrays;
import java.util.Map;

/** Pages of the tab with more in them than a test can make queries for. */
public final class TabPages {
  private final StateFilesHistory history = new StateFilesHistory();

  /** Bytes that health says nothing about. */
  public static long little() {
    return StateFilesHealth.LITTLE;
  }

  /**
   * A process tells of a checkpoint, and a sample is kept.
   *
   * @param figures the figures that are told, by name; of others it tells nothing
   */
  public void tell(String location, long atMs, Map<String, ? extends Number> figures) {
    long[] news = new long[Figure.COUNT];
    for (Figure figure : Figure.values()) {
      Number told = figures.get(figure.name());
      news[figure.ordinal()] = told != null ? told.longValue() : figure.isSum() ? 0 : Figure.UNKNOWN;
    }
    history.add(Map.of(location, news), atMs);
    history.sample(atMs);
  }

  /** The page at some time, as in a request. */
  public String page(long atMs, String chosen, boolean hasQueries) {
    return new StateFilesHtml(history.view(atMs), hasQueries).page(chosen);
  }

  /**
   * A page of many checkpoints, of which processes have told often.
   *
   * @param checkpoints how many; the n-th one has n bytes
   * @param times how often each was told of, a minute apart
   * @param location begins the location of each
   * @param chosen as in a request
   */
  public static String pageOfMany(int checkpoints, int times, String location, String chosen) {
    StateFilesHistory history = new StateFilesHistory();
    for (int minute = 1; minute <= times; minute++) {
      for (int n = 1; n <= checkpoints; n++) {
        long[] news = new long[Figure.COUNT];
        Arrays.fill(news, 1);
        news[Figure.PHYSICAL_BYTES.ordinal()] = n;
        news[Figure.FILES.ordinal()] = minute;
        history.add(Map.of(location + n, news), minute * 60_000L + n);
      }
      history.sample(minute * 60_000L);
    }
    return new StateFilesHtml(history.view((times + 1) * 60_000L), true).page(chosen);
  }
}
