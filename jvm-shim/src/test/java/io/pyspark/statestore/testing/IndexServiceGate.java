package io.pyspark.statestore.testing;

import io.pyspark.statestore.fs.IndexEndpoint;
import io.pyspark.statestore.fs.MergedCheckpointFileManager;
import io.pyspark.statestore.log.HeldReports;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEnv;
import scala.PartialFunction;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * Stands before the index service of a running driver, and answers late, not at all, or twice as it is told. A question
 * that is refused was either not heard, or heard and its answer lost.
 */
public final class IndexServiceGate implements RpcEndpoint {
  private static final ExecutorService THREADS =
      Executors.newCachedThreadPool(
          task -> {
            Thread thread = new Thread(task, "index-service-gate");
            thread.setDaemon(true);
            return thread;
          });

  /** So long an answer takes. */
  public static volatile long delayMs;

  /** So many questions are refused in each {@link #OF}. */
  public static volatile int refused;

  private static final int OF = 10;
  private static final AtomicInteger ASKED = new AtomicInteger();
  private static final AtomicInteger REPORTS = new AtomicInteger();

  private final RpcEnv rpcEnv;

  private IndexServiceGate(RpcEnv rpcEnv) {
    this.rpcEnv = rpcEnv;
  }

  /** Takes the service's place in this driver. {@code conf} has the file system of {@code location}. */
  public static void install(String location, Configuration conf) throws Exception {
    new MergedCheckpointFileManager(new Path(location), conf).close();
    RpcEnv env = SparkEnv.get().rpcEnv();
    env.stop(env.setupEndpointRef(env.address(), IndexEndpoint.NAME));
    env.setupEndpoint(IndexEndpoint.NAME, new IndexServiceGate(env));
    tell(0, 0);
  }

  /** Says how it behaves from now on. */
  public static void tell(long delay, int refusals) {
    delayMs = delay;
    refused = refusals;
  }

  /** How many questions have come. */
  public static int asked() {
    return ASKED.get();
  }

  /** How many reports are not answered yet. */
  public static int reportsUnderWay() {
    return REPORTS.get();
  }

  @Override
  public RpcEnv rpcEnv() {
    return rpcEnv;
  }

  @Override
  public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
    return new AbstractPartialFunction<>() {
      @Override
      public boolean isDefinedAt(Object message) {
        return message instanceof byte[];
      }

      @Override
      public BoxedUnit apply(Object message) {
        THREADS.execute(() -> pass((byte[]) message, context));
        return BoxedUnit.UNIT;
      }
    };
  }

  private static void pass(byte[] question, RpcCallContext context) {
    int number = ASKED.incrementAndGet();
    RpcAddress sender = context.senderAddress();
    int reports = 0;
    try {
      reports = HeldReports.isReport(question) ? 1 : 0;
      REPORTS.addAndGet(reports);
      Thread.sleep(delayMs / 2);
      boolean lost = number % OF < refused;
      if (!lost || number % 2 == 0) {
        CompletableFuture<byte[]> answer = IndexEndpoint.answer(question, sender);
        Thread.sleep(delayMs / 2);
        if (!lost) {
          REPORTS.addAndGet(-reports);
          answer.thenAccept(context::reply);
        }
        // Doubled: whatever it says was said before.
        IndexEndpoint.answer(question, sender);
      }
      if (lost) {
        REPORTS.addAndGet(-reports);
        context.sendFailure(new IllegalStateException("refused by the test"));
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
