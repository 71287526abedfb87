package io.pyspark.statestore.write;

import java.io.IOException;

/** The end of a task of Spark's. */
public interface TaskEnd {
  /** Where there are no tasks. */
  TaskEnd NONE = last -> false;

  /** What a task waits for. */
  interface Wait {
    void await() throws IOException;
  }

  /**
   * Makes the task of the current thread wait before it ends. The task fails where the wait does.
   *
   * @return false where the thread works for no task
   */
  boolean waitsFor(Wait last);

  /** The batch of a streaming query for which the task of the current thread works; -1 where there is none. */
  default long batch() {
    return -1;
  }

  /** Runs something if the task of the current thread fails. */
  default void ifFails(Runnable action) {}
}
