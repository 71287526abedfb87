package io.pyspark.statestore.testing;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.lang.reflect.Constructor;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.apache.hadoop.fs.FSError;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.AccessControlException;

/**
 * The rules by which calls of {@link FaultyFileSystem} and {@link FaultyObjectStore} fail.
 *
 * <p>Kinds of faults:
 *
 * <ul>
 *   <li>{@code ioexception}: the call does nothing. A failed close() loses what was not flushed.
 *   <li>{@code permission}: the same, as AccessControlException.
 *   <li>{@code no_space}: half of the bytes arrive, then "No space left on device".
 *   <li>{@code torn}: half of the bytes arrive (of the write, or of what a flush or close had to write), then an error;
 *       the stream is broken from then on. A read returns half of the bytes and then the end of the file.
 *   <li>{@code fs_error}: as no_space, but with an FSError, an Error, which the local file systems of Hadoop really
 *       throw.
 *   <li>{@code success_but_error}: the call does its work, and then reports a failure.
 *   <li>{@code short}: a listing silently leaves out its second half.
 *   <li>{@code hang}: the call waits for {@link #release()}; an interrupt ends it, with nothing done.
 *   <li>{@code killed}: the task is interrupted. A call in the task's own thread notices, and does nothing.
 *   <li>{@code killed_unnoticed}: the task is interrupted, but the call does not look.
 *   <li>{@code killed_late}: the call does its work, but reports that it was interrupted.
 * </ul>
 */
public final class Faults {
  private static final Set<String> KINDS =
      Set.of(
          "ioexception",
          "permission",
          "no_space",
          "torn",
          "fs_error",
          "success_but_error",
          "short",
          "hang",
          "killed",
          "killed_unnoticed",
          "killed_late");
  private static final Set<String> OPERATIONS =
      Set.of(
          "create",
          "append",
          "open",
          "read",
          "write",
          "hflush",
          "hsync",
          "close",
          "getFileStatus",
          "listStatus",
          "delete",
          "rename",
          "mkdirs",
          "other");
  private static final long PATIENCE_SECONDS = 60;
  private static final List<Rule> RULES = new CopyOnWriteArrayList<>();
  private static final AtomicInteger FIRED = new AtomicInteger();
  private static final List<Thread> VICTIMS = new CopyOnWriteArrayList<>();
  private static volatile Consumer<String> onHang = where -> {};
  private static volatile CountDownLatch released = new CountDownLatch(1);

  private Faults() {}

  /** One rule. The file system that makes the call decides what the fault does to it. */
  record Rule(String operation, String contains, int first, int last, String kind, AtomicInteger seen) {
    boolean is(String... kinds) {
      return List.of(kinds).contains(kind);
    }

    /** Whether the call does all its work before it fails. */
    boolean worksFirst() {
      return is("success_but_error", "killed_late");
    }

    /** Whether half of the work is done. */
    boolean worksByHalf() {
      return is("torn", "no_space", "fs_error");
    }

    IOException failure(Path path) {
      String what = "injected fault (" + kind + ") in " + operation + " of " + path;
      return switch (kind) {
        case "permission" -> new AccessControlException("Permission denied: " + what);
        case "no_space" -> new IOException("No space left on device: " + what);
        case "fs_error" -> throw fsError(new IOException("No space left on device: " + what));
        case "hang", "killed", "killed_late" -> new InterruptedIOException(what);
        default -> new IOException(what);
      };
    }
  }

  /** Makes the n-th call (from 1) of an operation fail whose path, for rename the target, contains a text. */
  public static void addRule(String operation, String pathContains, int nth, String kind) {
    addRule(operation, pathContains, nth, 1, kind);
  }

  /** As {@link #addRule(String, String, int, String)}, for {@code times} calls in a row. */
  public static void addRule(String operation, String pathContains, int nth, int times, String kind) {
    if (!OPERATIONS.contains(operation) || !KINDS.contains(kind) || nth < 1 || times < 1) {
      throw new IllegalArgumentException(
          "no such rule: "
              + operation
              + " "
              + nth
              + "+"
              + times
              + " "
              + kind
              + "; operations "
              + OPERATIONS
              + ", kinds "
              + KINDS);
    }
    RULES.add(new Rule(operation, pathContains, nth, nth + times - 1, kind, new AtomicInteger()));
  }

  /** How many calls were made to fail since the last clear(). */
  public static int fired() {
    return FIRED.get();
  }

  /** Forgets all rules and how often they fired, and lets calls that hang go on. */
  public static void clear() {
    RULES.clear();
    FIRED.set(0);
    VICTIMS.clear();
    onHang = where -> {};
    release();
    released = new CountDownLatch(1);
  }

  /** Lets calls that hang go on, now and later. */
  public static void release() {
    released.countDown();
  }

  /**
   * Adds a thread of the task. A fault that kills the task interrupts the thread that makes the call, else the first.
   */
  static void victims(Thread thread) {
    VICTIMS.removeIf(each -> !each.isAlive());
    VICTIMS.add(thread);
  }

  /** Kills the task, as Spark does: by an interrupt of its threads. */
  static void kill() {
    VICTIMS.forEach(Thread::interrupt);
  }

  /** Sets what a thread does when it begins to hang; it passes its name, and whether it is one of the task's. */
  static void onHang(Consumer<String> action) {
    onHang = action;
  }

  /**
   * The rule that makes this call fail, or null. Every rule that matches counts the call.
   *
   * @throws InterruptedIOException if the fault interrupts the call before it does anything
   */
  static Rule hit(String operation, Path path) throws InterruptedIOException {
    Rule hit = null;
    for (Rule rule : RULES) {
      if (rule.operation.equals(operation) && path.toString().contains(rule.contains)) {
        int n = rule.seen.incrementAndGet();
        if (n >= rule.first && n <= rule.last && hit == null) {
          hit = rule;
        }
      }
    }
    if (hit == null) {
      return null;
    }
    FIRED.incrementAndGet();
    if (hit.is("hang")) {
      hang(hit, path);
      return null;
    }
    if (!hit.is("killed", "killed_unnoticed", "killed_late")) {
      return hit;
    }
    if (VICTIMS.isEmpty()) {
      return null;
    }
    boolean own = VICTIMS.contains(Thread.currentThread());
    (own ? Thread.currentThread() : VICTIMS.get(0)).interrupt();
    if (hit.is("killed") && own) {
      throw (InterruptedIOException) hit.failure(path);
    }
    return hit.is("killed_late") && own ? hit : null;
  }

  private static void hang(Rule rule, Path path) throws InterruptedIOException {
    Thread thread = Thread.currentThread();
    onHang.accept(thread.getName() + (VICTIMS.contains(thread) ? " (the task's own)" : ""));
    try {
      if (!released.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
        throw new IllegalStateException("nobody released " + rule.operation + " of " + path);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw (InterruptedIOException) rule.failure(path);
    }
  }

  private static FSError fsError(IOException cause) {
    try {
      Constructor<FSError> constructor = FSError.class.getDeclaredConstructor(Throwable.class);
      constructor.setAccessible(true);
      return constructor.newInstance(cause);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
