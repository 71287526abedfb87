package io.pyspark.statestore.log;

/**
 * Follows the uploads that one thread makes, and says when nobody wants them any more. They end then with an {@link
 * ObsoleteUploadException}: while they are collected, where whoever collects asks, and while they are written to a merged
 * file, at the next block. Nothing of them becomes visible. What is being flushed already is too late to stop.
 */
public interface UploadWatch {
  /** The thread begins to write a logical file, relative to {@code state/}. */
  void began(String path);

  /** Why nobody wants it any more; null as long as somebody does. Asked often, and by other threads. */
  String whyObsolete();

  /** The watch of what the current thread uploads; null for none. */
  static UploadWatch current() {
    return Watched.CURRENT.get();
  }

  /** Does something in the current thread, with its uploads watched. */
  static void during(UploadWatch watch, Runnable work) {
    UploadWatch outer = Watched.CURRENT.get();
    Watched.CURRENT.set(watch);
    try {
      work.run();
    } finally {
      Watched.CURRENT.set(outer);
    }
  }

  /** Ends what the current thread collects for an upload that is obsolete. */
  static void check(UploadWatch watch) {
    String why = watch == null ? null : watch.whyObsolete();
    if (why != null) {
      throw new ObsoleteUploadException(why);
    }
  }

  /** Holds the watches. */
  final class Watched {
    private static final ThreadLocal<UploadWatch> CURRENT = new ThreadLocal<>();

    private Watched() {}
  }
}
