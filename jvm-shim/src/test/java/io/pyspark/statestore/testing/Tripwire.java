package io.pyspark.statestore.testing;

import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Trouble in a query's rows: {@code SELECT reflect('io.pyspark.statestore.testing.Tripwire', 'pass', cast(k AS string))}.
 */
public final class Tripwire {
    private static volatile String trips = "";
    private static final AtomicBoolean ARMED = new AtomicBoolean();

    private Tripwire() {}

    /** The next row with this value fails its task, once. */
    public static void arm(String value) {
        trips = value;
        ARMED.set(true);
    }

    /** Whether a row has come since {@link #arm}. */
    public static boolean tripped() {
        return !ARMED.get();
    }

    /** Called for each row: fails, stops at the {@link Gate} called "row", or returns the value. */
    public static String pass(String value) {
        if (trips.equals(value) && ARMED.compareAndSet(true, false)) {
            throw new IllegalStateException("tripped over " + value);
        }
        Gate.pass("row", value);
        return value;
    }
}
