package io.pyspark.statestore.tables;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/**
 * The requests for parts of files that are about to be read, for which nobody waits yet. What lies between two parts
 * comes along where another request would take longer.
 */
final class PartRequests {
  /** A request is no larger than this. */
  private static final int WIDEST = 1 << 20;

  /** What is fetched along between two parts where it displaces others: a few blocks. */
  private static final long CROWDED_BRIDGE = 16 << 10;

  private final RequestCosts costs;
  private final long bridge;
  private final Consumer<PartialFile> asked;
  private final BooleanSupplier isCancelled;
  private final List<Callable<Void>> all = new ArrayList<>();

  /**
   * None yet.
   *
   * @param costs what requests have cost, and what these do
   * @param isCrowded whether what comes along displaces what somebody has asked for
   * @param asked told of the file of each request when that has come
   * @param isCancelled asked before each request
   */
  PartRequests(RequestCosts costs, boolean isCrowded, Consumer<PartialFile> asked, BooleanSupplier isCancelled) {
    this.costs = costs;
    this.asked = asked;
    this.isCancelled = isCancelled;
    bridge = Math.min(isCrowded ? CROWDED_BRIDGE : WIDEST, costs.bridge());
  }

  /** Adds what is needed for parts of a file, of which there is one at least. */
  void add(PartialFile file, List<LazyFiles.Part> parts) {
    parts.sort(Comparator.comparingLong(LazyFiles.Part::from));
    long from = parts.get(0).from();
    long to = parts.get(0).to();
    for (LazyFiles.Part part : parts) {
      if (part.from() > to + bridge || part.to() > from + WIDEST) {
        all.add(request(file, from, to));
        from = Math.max(to, part.from());
      }
      to = Math.max(to, part.to());
    }
    all.add(request(file, from, to));
  }

  List<Callable<Void>> all() {
    return all;
  }

  private Callable<Void> request(PartialFile file, long from, long to) {
    return () -> {
      if (isCancelled.getAsBoolean()) {
        return null;
      }
      long began = System.nanoTime();
      long bytes = file.needSoon(from, to);
      if (bytes > 0) {
        costs.add(bytes, System.nanoTime() - began);
      }
      asked.accept(file);
      return null;
    };
  }
}
