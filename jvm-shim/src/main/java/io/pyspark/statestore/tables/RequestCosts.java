package io.pyspark.statestore.tables;

/**
 * What requests for parts of a file have cost lately: so much for each, and so much for each byte. Both are measured,
 * by a line through the latest requests, because what is scarce differs: time until a store answers, its bandwidth, or
 * the processors of this machine, which many requests at a time share.
 */
final class RequestCosts {
  /** How much a request counts in what they cost lately: one part in so many. */
  private static final double LATELY = 64;

  /** Before anything is known: a millisecond, and 100 MB/s. */
  private static final double FIRST_NANOS = 1_000_000;

  private static final double FIRST_NANOS_OF_BYTE = 10;

  /** No faster and no slower than that is believed, a GB/s and a MB/s. */
  private static final double LEAST_NANOS_OF_BYTE = 1;

  private static final double MOST_NANOS_OF_BYTE = 1000;

  /** Sizes have to differ by so much, in bytes, before they tell what a byte costs. */
  private static final double LEAST_DEVIATION = 4 << 10;

  private double requests;
  private double bytes;
  private double nanos;
  private double squares;
  private double products;

  /** A request has taken so long. */
  synchronized void add(long ofBytes, long ofNanos) {
    double weight = Math.max(1 / LATELY, 1 / (requests + 1));
    requests++;
    bytes += (ofBytes - bytes) * weight;
    nanos += (ofNanos - nanos) * weight;
    squares += ((double) ofBytes * ofBytes - squares) * weight;
    products += ((double) ofBytes * ofNanos - products) * weight;
  }

  /** How many bytes may come along between two parts, since another request would take longer than they do. */
  synchronized long bridge() {
    if (requests == 0) {
      return (long) (FIRST_NANOS / FIRST_NANOS_OF_BYTE);
    }
    double variance = squares - bytes * bytes;
    double ofByte = FIRST_NANOS_OF_BYTE;
    if (variance > LEAST_DEVIATION * LEAST_DEVIATION) {
      ofByte = (products - bytes * nanos) / variance;
    }
    ofByte = Math.max(LEAST_NANOS_OF_BYTE, Math.min(MOST_NANOS_OF_BYTE, ofByte));
    return (long) (Math.max(0, nanos - ofByte * bytes) / ofByte);
  }
}
