package io.pyspark.statestore.rocks;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.UnaryOperator;

/** Makes a bad hint of what is asked for ahead: other keys, fewer, errors. */
public final class Tampering {
  private static final AtomicLong TIMES = new AtomicLong();

  private Tampering() {}

  /** From now on at random. */
  public static void on(long seed) {
    Random random = new Random(seed);
    TIMES.set(0);
    ReadAhead.tampering = keys -> tampered(keys, random);
  }

  /** From now on whoever looks ahead is never answered. */
  public static void hang() {
    TIMES.set(0);
    ReadAhead.tampering =
        keys -> {
          TIMES.incrementAndGet();
          if (!Thread.currentThread().getName().startsWith("pyspark-statestore-look-ahead")) {
            return keys;
          }
          try {
            Thread.sleep(600_000);
          } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
          }
          return keys;
        };
  }

  /** How often a hint was a bad one. */
  public static long times() {
    return TIMES.get();
  }

  /** No more. Returns how often a hint was a bad one. */
  public static long off() {
    ReadAhead.tampering = UnaryOperator.identity();
    return TIMES.get();
  }

  private static synchronized List<AskedKey> tampered(List<AskedKey> keys, Random random) {
    int kind = random.nextInt(6);
    if (kind > 0) {
      TIMES.incrementAndGet();
    }
    List<AskedKey> others = new ArrayList<>(keys);
    switch (kind) {
      case 0 -> {
        return keys;
      }
      case 1 -> throw new IllegalStateException("tampered with");
      case 2 -> throw new OutOfMemoryError("tampered with");
      case 3 -> others.subList(0, others.size() / 2).clear();
      case 4 -> others.replaceAll(key -> new AskedKey(random(random), random.nextBoolean()));
      default -> {
        others.add(new AskedKey(new byte[0], true));
        others.add(AskedKey.row("nothing".getBytes(StandardCharsets.UTF_8)));
      }
    }
    return others;
  }

  private static byte[] random(Random random) {
    byte[] bytes = new byte[random.nextInt(40)];
    random.nextBytes(bytes);
    return bytes;
  }
}
