package io.pyspark.statestore.fs;

import io.pyspark.statestore.Options;
import io.pyspark.statestore.files.Threads;
import io.pyspark.statestore.log.MergedLog;
import io.pyspark.statestore.log.MergedLogs;
import io.pyspark.statestore.service.FairThreads;
import java.io.IOException;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.PartialFunction;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * The index service as an endpoint of Spark's RPC: in the driver, as Spark's own {@code StateStoreCoordinator} is.
 * Executors come to it by {@link SparkTransport}.
 *
 * <p>The driver decides who uses it. It makes the endpoint with a query's first file manager, and says so in the Hadoop
 * configuration that Spark broadcasts with every stage. An executor never decides by itself that there is no service:
 * it would then write what others do not hear of. In {@code local[n]} nobody asks: tasks use the driver's log itself.
 */
public final class IndexEndpoint implements RpcEndpoint {
  private static final Logger LOG = LoggerFactory.getLogger(IndexEndpoint.class);
  public static final String NAME = "pyspark-statestore-index";

  /** Answers what is in memory, and waits for nothing. Spark's own threads have more to do than to wait for it. */
  private static final ExecutorService QUICK = Executors.newFixedThreadPool(4, Threads.daemons("merged-index-service"));

  /** Answers what may take as long as the file system of its checkpoint does. */
  private static final FairThreads FAIR =
      new FairThreads(Executors.newCachedThreadPool(Threads.daemons("merged-index-service-files")), 4);

  /**
   * By checkpoint, the configuration of its query. The manager of the query's logs holds it, so it is known as long as
   * the query runs, however many there are, and goes with it.
   */
  private static final Map<Path, Reference<Configuration>> CONFIGURATIONS = new HashMap<>();

  private static final ReferenceQueue<Configuration> GONE = new ReferenceQueue<>();

  /** The context in which the ends of queries are listened for. */
  private static Reference<SparkEnv> heard = new WeakReference<>(null);

  private static RpcEnv served;

  private final RpcEnv rpcEnv;

  private IndexEndpoint(RpcEnv rpcEnv) {
    this.rpcEnv = rpcEnv;
  }

  /**
   * A query's file manager was made: the driver is ready to answer its executors from now on.
   *
   * @param location real path of the checkpoint, or of a log in it
   */
  static void managerMade(Path location, Configuration conf) {
    SparkEnv env = SparkEnv.get();
    if (!ProcessIdentity.isDriver(env)) {
      return;
    }
    SparkContext context = ProcessIdentity.context();
    if (context == null || context.env() != env) {
      return;
    }
    hearOfEnds(context);
    if (ProcessIdentity.isLocal(env.conf())) {
      return;
    }
    synchronized (CONFIGURATIONS) {
      if (isLog(location) && configuration(location.getParent()) == null) {
        remember(location.getParent(), conf);
      }
      if (env.rpcEnv() == served) {
        return;
      }
      served = env.rpcEnv();
      try {
        env.rpcEnv().setupEndpoint(NAME, new IndexEndpoint(env.rpcEnv()));
        context.hadoopConfiguration().set(SparkTransport.KEY, NAME);
        LOG.info("The index service of merged state is ready");
      } catch (RuntimeException | LinkageError e) {
        LOG.warn(
            "There is no index service in this driver; executors read each other's merged files instead. What"
                + " to do: report it with this stack trace",
            e);
      }
    }
  }

  /** A run of a query begins: what is known of an earlier one does not count. */
  static void runBegins(Path checkpoint) {
    synchronized (CONFIGURATIONS) {
      CONFIGURATIONS.remove(checkpoint);
    }
  }

  /**
   * A file is written that is no state. Only the query itself writes into its logs; others may have read them before.
   */
  static void written(Path file, Configuration conf) {
    Path log = file.getParent();
    SparkEnv env = SparkEnv.get();
    if (log != null && isLog(log) && ProcessIdentity.isDriver(env) && !ProcessIdentity.isLocal(env.conf())) {
      synchronized (CONFIGURATIONS) {
        remember(log.getParent(), conf);
      }
    }
  }

  private static boolean isLog(Path location) {
    return location.getParent() != null
        && (location.getName().equals("offsets") || location.getName().equals("commits"));
  }

  private static Configuration configuration(Path checkpoint) {
    Reference<Configuration> known = CONFIGURATIONS.get(checkpoint);
    return known == null ? null : known.get();
  }

  private static void remember(Path checkpoint, Configuration conf) {
    CONFIGURATIONS.put(checkpoint, new WeakReference<>(conf, GONE));
    boolean anyGone = false;
    while (GONE.poll() != null) {
      anyGone = true;
    }
    if (anyGone) {
      CONFIGURATIONS.values().removeIf(known -> known.get() == null);
    }
  }

  /** Of how many checkpoints a query's configuration is remembered. */
  public static int remembered() {
    synchronized (CONFIGURATIONS) {
      return CONFIGURATIONS.size();
    }
  }

  /**
   * Has what is owed to a query's batches end with the query. Spark tells the listeners of a context, in all sessions.
   */
  private static void hearOfEnds(SparkContext context) {
    synchronized (CONFIGURATIONS) {
      if (heard.get() == context.env()) {
        return;
      }
      heard = new WeakReference<>(context.env());
    }
    try {
      context.addSparkListener(
          new SparkListener() {
            @Override
            public void onOtherEvent(SparkListenerEvent event) {
              if (event instanceof StreamingQueryListener.QueryTerminatedEvent ended) {
                MergedLogs.runEnded(ended.runId().toString());
              }
            }
          });
    } catch (RuntimeException | LinkageError e) {
      LOG.warn(
          "Ends of queries are not heard of; what stopped ones owe is kept until they are started again. What"
              + " to do: report it with this stack trace",
          e);
    }
  }

  /** The log of a checkpoint in the driver, refreshed for a run of its query. */
  private static MergedLog open(String stateDirectory, String queryRunId) throws IOException {
    Path state = new Path(stateDirectory);
    Configuration conf;
    synchronized (CONFIGURATIONS) {
      conf = configuration(state.getParent());
    }
    if (conf == null) {
      SparkContext context = ProcessIdentity.context();
      if (context == null) {
        throw new IOException("The driver's context is being stopped, so it does not answer for " + stateDirectory);
      }
      conf = context.hadoopConfiguration();
    }
    MergedFileSystem fs = MergedFileSystem.of(Schemes.toMerged(state), conf);
    return MergedLogs.of(
        fs.real(), state, Options.from(conf), ProcessIdentity.facts(queryRunId, conf), null, queryRunId, "");
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
        byte[] question = (byte[]) message;
        String waitsFor = MergedLogs.waitsFor(question);
        try {
          if (waitsFor == null) {
            QUICK.execute(() -> reply(question, context));
          } else {
            FAIR.execute(waitsFor, () -> reply(question, context));
          }
        } catch (RuntimeException | Error e) {
          // A process at its limit of threads has an OutOfMemoryError here.
          fail(context, e);
        }
        return BoxedUnit.UNIT;
      }
    };
  }

  /** Whoever asks hears of every failure, and does not wait for the time that an answer may take. */
  private static void reply(byte[] question, RpcCallContext context) {
    try {
      answer(question, context.senderAddress())
          .whenComplete(
              (said, failure) -> {
                if (failure == null) {
                  context.reply(said);
                } else {
                  fail(context, failure);
                }
              });
    } catch (RuntimeException | Error e) {
      fail(context, e);
    }
  }

  private static void fail(RpcCallContext context, Throwable why) {
    LOG.warn(
        "The index service could not answer. What to do: if it goes on, report it with this stack trace, and"
            + " restart the query with indexService.enabled=false",
        why);
    // The other side may not know the class of the failure.
    context.sendFailure(new IOException(String.valueOf(why)));
  }

  /** Answers a question that came over a connection. */
  public static CompletableFuture<byte[]> answer(byte[] question, RpcAddress sender) {
    return MergedLogs.answer(question, sender, IndexEndpoint::open);
  }

  @Override
  public void onDisconnected(RpcAddress address) {
    QUICK.execute(() -> MergedLogs.lost(address));
  }
}
