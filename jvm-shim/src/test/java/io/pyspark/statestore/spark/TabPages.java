package io.pyspark.statestore.spark;

import java.util.Arrays;
import java.util.Map;

/** Pages of the tab with more in them than a test can make queries for. */
public final class TabPages {
    private TabPages() {}

    /**
     * A page of many checkpoints, of which processes have told often.
     *
     * @param checkpoints how many; the n-th one has n bytes
     * @param times how often each was told of, a minute apart
     * @param location begins the location of each
     * @param chosen as in a request
     */
    public static String page(int checkpoints, int times, String location, String chosen) {
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
        return new StateFilesHtml(history.view((times + 1) * 60_000L)).page(chosen);
    }
}
