package io.pyspark.statestore.reshape;

import io.pyspark.statestore.Unchecked;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.ObjectStreamClass;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;

/**
 * Work in tasks, whatever serializer a session has for data ({@code spark.serializer}), and whichever classes that
 * knows.
 *
 * <p>Closures always travel by Java's serialization, and data by that serializer. Kryo writes no records, and no class
 * at all that nobody has registered, where registration is required. So what a task is to do is in its closure, and the
 * only data are numbers on the way there, and bytes on the way back.
 */
final class Tasks {
  private Tasks() {}

  /** What a task does. */
  interface Work<T extends Serializable> extends Serializable {
    T run(int number) throws Exception;
  }

  /** Runs a task for each number from 0 on, and returns what they have returned, in order. */
  static <T extends Serializable> List<T> run(JavaSparkContext spark, int count, Work<T> work) {
    if (count == 0) {
      return List.of();
    }
    List<byte[]> results = numbers(spark, count).map(number -> bytes(work.run(number))).collect();
    List<T> found = new ArrayList<>();
    for (byte[] each : results) {
      found.add(value(each));
    }
    return found;
  }

  /**
   * What tasks make for the tasks of a shuffle, one for each number from 0 on; rows only, which Spark writes itself.
   */
  static <T> JavaRDD<T> flatMap(JavaSparkContext spark, int count, FlatMapFunction<Integer, T> rows) {
    return numbers(spark, count).flatMap(rows);
  }

  /** As {@link #run}, of an RDD: what is made of each of its partitions. */
  static <R, T extends Serializable> List<T> run(JavaRDD<R> rows, PartitionWork<R, T> work) {
    List<byte[]> results =
        rows.mapPartitionsWithIndex(
                (number, each) -> Collections.singletonList(bytes(work.run(number, each))).iterator(), true)
            .collect();
    List<T> found = new ArrayList<>();
    for (byte[] each : results) {
      found.add(value(each));
    }
    return found;
  }

  /** What a task makes of a partition of an RDD. */
  interface PartitionWork<R, T extends Serializable> extends Serializable {
    T run(int number, java.util.Iterator<R> rows) throws Exception;
  }

  private static JavaRDD<Integer> numbers(JavaSparkContext spark, int count) {
    // An RDD of as many partitions, which are numbered already: there is no data to be written.
    return spark
        .<Integer>parallelize(new ArrayList<>(), count)
        .mapPartitionsWithIndex((number, nothing) -> Collections.singletonList(number).iterator(), true);
  }

  private static byte[] bytes(Serializable value) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(value);
    }
    return bytes.toByteArray();
  }

  @SuppressWarnings("unchecked")
  private static <T> T value(byte[] bytes) {
    try (ObjectInputStream in = new ResultStream(new ByteArrayInputStream(bytes))) {
      return (T) in.readObject();
    } catch (IOException | ClassNotFoundException e) {
      throw Unchecked.raise(e);
    }
  }

  /** Finds classes where this one comes from: the jar may be one that was added to a session. */
  private static final class ResultStream extends ObjectInputStream {
    ResultStream(InputStream in) throws IOException {
      super(in);
    }

    @Override
    protected Class<?> resolveClass(ObjectStreamClass described) throws IOException, ClassNotFoundException {
      try {
        return Class.forName(described.getName(), false, Tasks.class.getClassLoader());
      } catch (ClassNotFoundException e) {
        return super.resolveClass(described);
      }
    }
  }
}
