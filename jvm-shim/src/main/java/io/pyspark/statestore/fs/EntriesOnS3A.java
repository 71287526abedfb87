package io.pyspark.statestore.fs;

import io.pyspark.statestore.Unchecked;
import java.io.IOException;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * How an entry of a log gets onto S3A.
 *
 * <p>S3 refuses a PUT of an object that is there, if it is told to ({@code If-None-Match}). S3A does so from Hadoop
 * 3.4.2 on. Other stores that speak S3 may ignore it, so the store has to prove it once in each process: the first
 * entry is written as Spark does it, by a rename, and then once more with the same bytes and the condition. Only a
 * store that refuses the second one gets entries without a temporary object and a rename.
 */
final class EntriesOnS3A {
  private static final Logger LOG = LoggerFactory.getLogger(EntriesOnS3A.class);

  /** What S3A has to be able to do. Older ones know none of the first two. */
  private static final String[] CAPABILITIES = {
    ConditionalEntry.CONDITIONAL, ConditionalEntry.HEADERS, CommonPathCapabilities.ABORTABLE_STREAM
  };

  /** Which stores have refused a second object, and which have not. A process has one file system for each bucket. */
  private static final Map<FileSystem, Boolean> REFUSES = Collections.synchronizedMap(new WeakHashMap<>());

  private final FileSystem fs;

  EntriesOnS3A(FileSystem fs) {
    this.fs = fs;
  }

  /** Begins an entry, which must not be there yet when it is closed. */
  AtomicFile create(Path path) {
    try {
      return REFUSES.getOrDefault(fs, false) ? new ConditionalEntry(fs, path) : new RenamedEntry(fs, path);
    } catch (IOException e) {
      throw Unchecked.raise(e);
    }
  }

  /**
   * An entry was added, by which the store may prove what it does.
   *
   * @param content null where it was too long to be kept
   */
  void added(Path path, byte[] content) {
    if (content != null && !REFUSES.containsKey(fs)) {
      REFUSES.put(fs, refusesSecond(path, content));
    }
  }

  private boolean refusesSecond(Path path, byte[] content) {
    ConditionalEntry second = null;
    try {
      for (String capability : CAPABILITIES) {
        if (!fs.hasPathCapability(path, capability)) {
          return false;
        }
      }
      second = new ConditionalEntry(fs, path);
      second.out().write(content);
      if (second.isRefused()) {
        return true;
      }
      LOG.info("{} replaces objects that it is told not to replace. Entries of logs are renamed there", fs.getUri());
    } catch (IOException | RuntimeException e) {
      LOG.info("Whether {} refuses to replace an object is not known. Entries of logs are renamed", fs.getUri(), e);
      if (second != null) {
        second.cancel();
      }
    }
    return false;
  }
}
