package io.pyspark.statestore.write;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Watches the uploads of one thread, and says when they are obsolete. An obsolete upload ends with an {@link
 * ObsoleteUploadException}, either while its bytes are collected, if {@link #check} is called there, or at the next
 * block that is written to a merged file. Nothing of it becomes visible. An upload that is being flushed cannot be
 * stopped.
 */
public interface UploadWatch {
  /** The thread begins to write a logical file, relative to {@code state/}. */
  void began(String path);

  /**
   * Says why the upload is obsolete, as far as is known; null where it is not. Called often, and by threads that hold a
   * lane's lock, so it must not wait.
   */
  String whyObsolete();

  /** Asks Spark, which may mean waiting for Spark's locks, so it is called without locks of this package. */
  void ask();

  /** Asks if the last time is a while ago. The thread that collects the upload calls this at every step. */
  void askNowAndThen();

  /** Returns the watch of what the current thread uploads; null where there is none. */
  static UploadWatch current() {
    return Watched.CURRENT.get();
  }

  /** Runs something in the current thread, with its uploads watched. */
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

  /** Ends an obsolete upload that the current thread collects. The thread must hold no lock of this package. */
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

  /** Has all watches ask Spark, which lanes themselves must not. */
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
