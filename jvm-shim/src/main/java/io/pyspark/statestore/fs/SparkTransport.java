package io.pyspark.statestore.fs;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.learn.IndexTransport;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.util.RpcUtils;
import org.apache.spark.util.ThreadUtils;
import scala.concurrent.Future;
import scala.reflect.ClassTag;

/**
 * The way from an executor to the driver's index service, through Spark's RPC. {@link IndexEndpoint} is its other end.
 *
 * <p>Messages are arrays of bytes, because the class loader of Spark's RPC does not know added jars.
 */
final class SparkTransport {
  /**
   * The key under which executors find the endpoint's name. The driver sets it in the Hadoop configuration that Spark
   * broadcasts with every stage.
   */
  static final String KEY = "io.pyspark.statestore.indexService";

  private static volatile Way way;

  private SparkTransport() {}

  /** The driver, as the executor knows it. */
  private record Way(RpcEnv rpcEnv, RpcEndpointRef driver) {}

  /** The way from this process to the service; null where it works by itself, or is the driver. */
  static IndexTransport of(Configuration conf, Options options) {
    SparkEnv env = SparkEnv.get();
    String name = conf.get(KEY, "");
    return name.isEmpty() || env == null || ProcessIdentity.isDriver(env) || !options.indexService()
        ? null
        : question -> send(env, name, question);
  }

  private static CompletableFuture<byte[]> send(SparkEnv env, String name, byte[] question) throws IOException {
    CompletableFuture<byte[]> answer = new CompletableFuture<>();
    try {
      Way known = way;
      if (known == null || known.rpcEnv != env.rpcEnv()) {
        known = new Way(env.rpcEnv(), RpcUtils.makeDriverRef(name, env.conf(), env.rpcEnv()));
        way = known;
      }
      Future<byte[]> asked = known.driver.ask(question, ClassTag.apply(byte[].class));
      asked.onComplete(
          said -> said.isSuccess() ? answer.complete(said.get()) : answer.completeExceptionally(said.failed().get()),
          ThreadUtils.sameThread());
    } catch (Exception e) {
      // Scala declares no exceptions.
      if (e instanceof InterruptedException || Thread.currentThread().isInterrupted()) {
        Thread.currentThread().interrupt();
        throw (IOException) new InterruptedIOException("Interrupted while the index service was asked").initCause(e);
      }
      throw new IOException(e.getMessage(), e);
    }
    return answer;
  }
}
