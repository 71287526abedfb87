package io.pyspark.statestore.index;

import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;

/** Small numbers for merged files, so that an entry says in a byte or two which file holds it. */
final class FileNumbers {
  /** The number of no file. */
  static final int NO_FILE = 0;

  private MergedFile[] files = new MergedFile[16];
  private int next = NO_FILE + 1;
  private final Deque<Integer> free = new ArrayDeque<>();

  int give(MergedFile file) {
    int number = free.isEmpty() ? next++ : free.pop();
    if (number == files.length) {
      files = Arrays.copyOf(files, 2 * number);
    }
    files[number] = file;
    return number;
  }

  /** The file with a number, or null for {@link #NO_FILE}. */
  MergedFile file(int number) {
    return files[number];
  }

  /** No entry has the number any more. */
  void takeBack(int number) {
    files[number] = null;
    free.push(number);
  }
}
