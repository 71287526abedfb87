package io.pyspark.statestore.sink.join;

import java.io.Serializable;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * What is to be done with the files of one bin: they become one file, or a few.
 *
 * @param directory of the new files
 * @param files at least one, in order
 */
public record Join(Path directory, List<FileStatus> files) implements Serializable {}
