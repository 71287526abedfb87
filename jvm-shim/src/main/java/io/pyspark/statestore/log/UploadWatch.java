package io.pyspark.statestore.log;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Follows the uploads that one thread makes, and says when nobody wants them any more. They end then with an {@link
 * ObsoleteUploadException}: while they are collected, where whoever collects asks, and while they are written to a merged
 * file, at the next block. Nothing of them becomes visible. What is being flushed already is too late to stop.
 */
public interface UploadWatch {
  /** The thread begins to write a logical file, relative to {@code state/}. */
  void began(String path);

  /**
   * Why nobody wants it any more, as far as is known; null as long as somebody does. Asked often, and by threads that hold
   * locks of a lane, so it waits for nobody.
   */
  String whyObsolete();

  /** Asks whoever knows, which may mean to wait for Spark's locks; so it is called without locks of ours. */
  void ask();

  /** The same, by who collects the upload and calls this all the time. */
  void askNowAndThen();

  /** The watch of what the current thread uploads; null for none. */
  static UploadWatch current() {
    return Watched.CURRENT.get();
  }

  /** Does something in the current thread, with its uploads watched. */
  static void during(UploadWatch watch, Runnable work) {
    UploadWatch outer = Watched.CURRENT.get();
    Watched.CURRENT.set(watch);
    Watched.ACTIVE.add(watch);
    try {
      work.run();
    } finally {
      Watched.ACTIVE.remove(watch);
      Watched.CURRENT.set(outer);
    }
  }

  /** Ends what the current thread, which holds no lock of ours, collects for an upload that is obsolete. */
  static void check(UploadWatch watch) {
    if (watch == null) {
      return;
    }
    watch.askNowAndThen();
    String why = watch.whyObsolete();
    if (why != null) {
      throw new ObsoleteUploadException(why);
    }
  }

  /** Whether anything is being uploaded under a watch. */
  static boolean any() {
    return !Watched.ACTIVE.isEmpty();
  }

  /** Has all watches ask: on behalf of lanes, which must not. */
  static void askAll() {
    Watched.ACTIVE.forEach(UploadWatch::ask);
  }

  /** Ends an upload that is not needed any more. That is no error, so it has no stack trace. */
  final class ObsoleteUploadException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    ObsoleteUploadException(String why) {
      super("The upload was cancelled: " + why + ". Nothing of it is visible, and nothing is lost", null, false, false);
    }
  }

  /** Holds the watches. */
  final class Watched {
    private static final ThreadLocal<UploadWatch> CURRENT = new ThreadLocal<>();
    private static final Set<UploadWatch> ACTIVE = ConcurrentHashMap.newKeySet();

    private Watched() {}
  }
}
