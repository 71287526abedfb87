package io.pyspark.statestore.rocks;

import io.pyspark.statestore.Unchecked;
import io.pyspark.statestore.tables.LazyFiles;
import java.io.IOException;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.rocksdb.RocksDBException;
import org.rocksdb.Status;

/**
 * Repeats reads of RocksDB that found a hole in a file, after the hole was filled.
 *
 * <p>A hole is zeros, and no block of zeros has the checksum zero, so RocksDB says which block of which file has the
 * wrong checksum. If all of that block was there when the read began it is no hole. It is made right once then ({@link
 * LazyFiles#renew}); if its bytes are as they were written, the error is RocksDB's own.
 */
final class Holes {
  private static final Pattern BLOCK = Pattern.compile(" in (\\S.*) offset (\\d{1,18}) size (\\d{1,18})");

  /** Behind each block, and not in the size that RocksDB tells: how it is compressed, and its checksum. */
  private static final int BLOCK_TRAILER = 5;

  private final LazyFiles files;

  Holes(LazyFiles files) {
    this.files = files;
  }

  /** The part that a failed read has found to be damaged, or to be a hole; null where that is not what it says. */
  static LazyFiles.Part partOf(RocksDBException e) {
    if (e.getStatus() == null || e.getStatus().getCode() != Status.Code.Corruption) {
      return null;
    }
    Matcher block = BLOCK.matcher(String.valueOf(e.getMessage()));
    if (!block.find()) {
      return null;
    }
    long from = Long.parseLong(block.group(2));
    long to = from + Long.parseLong(block.group(3)) + BLOCK_TRAILER;
    return new LazyFiles.Part(Path.of(block.group(1)).getFileName().toString(), from, to);
  }

  /** A read of RocksDB. */
  interface Read<T> {
    T run() throws RocksDBException;
  }

  /** Reads a row, until no hole is in the way. */
  <T> T read(Read<T> read) throws RocksDBException {
    Attempt attempt = new Attempt(false);
    try {
      while (true) {
        attempt.begins();
        try {
          return read.run();
        } catch (RocksDBException e) {
          attempt.failed(e);
        }
      }
    } finally {
      attempt.isOver();
    }
  }

  /** Reads once more and once more, for one purpose: a row, or a scan. */
  final class Attempt {
    private final boolean isScan;
    private long before;
    private int found;
    private boolean hasSupplied;
    private boolean wasRenewed;

    /** What the read before could not understand. */
    private LazyFiles.Part last;

    Attempt(boolean isScan) {
      this.isScan = isScan;
    }

    /** A read begins. */
    void begins() {
      try {
        files.check();
      } catch (IOException e) {
        throw Unchecked.raise(e);
      }
      before = files.progress();
    }

    /** Has a part filled, or finds that its file was deleted. That answers for one read only. */
    private boolean supply(LazyFiles.Part part) throws IOException {
      hasSupplied = true;
      boolean isAgain = part.equals(last);
      last = part;
      boolean isFilled =
          files.supply(part.name(), part.from(), part.to() - part.from(), isScan ? found++ : -1, before, this);
      return isFilled && !(isAgain && files.progress() == before);
    }

    /** The read has found all that it needed, or is given up. */
    void isOver() {
      wasRenewed = false;
      last = null;
      if (hasSupplied) {
        hasSupplied = false;
        files.letGo(this);
      }
    }

    /** The read has failed. Fills the hole, or fails as well where there is none. */
    void failed(RocksDBException e) throws RocksDBException {
      if (e.getStatus() == null || e.getStatus().getCode() != Status.Code.Corruption) {
        throw e;
      }
      try {
        LazyFiles.Part part = partOf(e);
        boolean wasFilled = part != null && supply(part);
        if (!wasFilled) {
          if (wasRenewed) {
            throw e;
          }
          wasRenewed = true;
          files.renew(part);
        }
      } catch (IOException cause) {
        cause.addSuppressed(e);
        throw Unchecked.raise(cause);
      }
    }
  }
}
