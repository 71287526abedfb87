package io.pyspark.statestore.reshape;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.state.metadata.StateMetadataPartitionReader;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryCheckpointMetadata;
import org.apache.spark.sql.execution.streaming.state.OfflineStateRepartitionRunner;
import org.apache.spark.sql.execution.streaming.state.OperatorStateMetadata;
import org.apache.spark.sql.execution.streaming.state.StatePartitionWriterColumnFamilyInfo;
import org.apache.spark.sql.execution.streaming.state.StateRewriter;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetadata;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;
import scala.Some;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Writes the state of a stopped query anew: in another number of partitions, or for another kind of store.
 *
 * <p>Spark decides everything about what is written: which operators can be, which part of a key says where it goes,
 * how rows are read and written, and what its logs say when. Its own {@code OfflineStateRepartitionRunner} and {@code
 * StateRewriter} are asked for all of it. What is done differently is how the rows get from one partition to the other.
 * A key of partition {@code p} of {@code n} can only go to the partitions of {@code m} that leave the same rest as
 * {@code p} when they are divided by the greatest common divisor of {@code n} and {@code m}. So where that leaves few,
 * a new partition reads the old ones and takes what is its own, and there is no shuffle. All stores of all operators
 * are written in one job.
 *
 * <p>Every row is checked to be in the partition in which Spark would look for it. Otherwise rows would be left out.
 */
public final class StateRewrite {
  /** A new partition reads so many old ones at most. Reading costs less than a shuffle, which also writes and sorts. */
  private static final int MOST_PARENTS = 8;

  private final SparkSession session;
  private final String location;
  private final Configuration conf;
  private final String provider;
  private final String next;
  private final int before;
  private final Set<Long> single;
  private final Map<String, OldStore> known = new HashMap<>();
  private Written written;

  /** What a task writes: some partitions of a store, which is one of a list. */
  private record Share(int store, int[] partitions) implements Serializable {}

  private StateRewrite(
      SparkSession session, String location, String provider, String next, int before, Set<Long> single) {
    this.session = session;
    this.location = location;
    this.provider = provider;
    this.next = next;
    this.before = before;
    this.single = single;
    this.conf = session.sessionState().newHadoopConf();
  }

  /**
   * Returns a rewriting; nothing is read yet. All but the session are texts, as all that comes from Python.
   *
   * @param location the checkpoint, as Spark is told
   * @param provider Spark's class that keeps the state
   * @param next Spark's class that is to keep it
   * @param before how many partitions the query has
   * @param single ids of operators that keep everything in partition 0, with spaces between
   */
  public static StateRewrite of(
      SparkSession session, String location, String provider, String next, String before, String single) {
    Set<Long> ids =
        Arrays.stream(single.split(" ")).filter(id -> !id.isEmpty()).map(Long::valueOf).collect(Collectors.toSet());
    return new StateRewrite(session, location, provider, next, Integer.parseInt(before), ids);
  }

  /**
   * Finds out whether Spark can read and write the stores, and knows for each row in which partition it is; reads
   * metadata and schemas, and writes nothing.
   *
   * @param batch the batch that left the state
   * @return why not; empty if it can
   */
  public String obstacle(long batch) throws ReflectiveOperationException {
    return stores(batch, batch, before, Set.of()).stream()
        .map(StoreRewrite::obstacle)
        .filter(each -> !each.isEmpty())
        .findFirst()
        .orElse("");
  }

  /**
   * Finds out which stores can be split: their new partitions may begin with the files of the old ones.
   *
   * @param batch the batch that left the state
   * @param partitions how many there will be
   * @return for each such store, the id of its operator and its name with a slash between; a line each
   */
  public String splittable(long batch, int partitions) throws ReflectiveOperationException {
    return stores(batch, batch, partitions, Set.of()).stream()
        .filter(StoreRewrite::canBeSplit)
        .map(StoreRewrite::name)
        .collect(Collectors.joining("\n"));
  }

  /**
   * Enters a batch in the query's offset log that has another number of partitions, unless that was done already. Spark
   * lets no query start then before it is committed.
   *
   * @return the batch
   */
  public long enter(int partitions) throws ReflectiveOperationException {
    return entered(runner(partitions)).batch();
  }

  /**
   * Writes the stores in so many partitions, as the state of the batch that was entered.
   *
   * @param split the stores, of those that can be split, whose new partitions have all files of the version that they
   *     are split off; as {@link #splittable} names them
   * @return a line for each partition of each store: the ids of the operator and of the partition, and the id that
   *     Spark's checkpoint format 2 gives what was written; nothing in the first format
   */
  public String write(int partitions, String split) throws ReflectiveOperationException {
    Entered entered = entered(runner(partitions));
    // A batch whose number is not the next one leaves no version that the old partitions have.
    boolean isNext = entered.batch() == entered.last() + 1;
    written = write(entered.last(), entered.batch(), partitions, isNext ? names(split) : Set.of());
    return written.lines();
  }

  /** Commits the batch that was entered, with what {@link #write(int, String)} has written. */
  public void commit(int partitions) throws ReflectiveOperationException {
    Internals runner = runner(partitions);
    Entered entered = entered(runner);
    Object ids = ids(entered.last(), entered.batch(), written);
    runner.call("updateNumPartitionsInOperatorMetadata", entered.batch(), entered.last());
    runner.call("commitBatch", entered.batch(), entered.last(), ids);
  }

  /** The batch of a repartitioning, and the last one that was committed before it. */
  private record Entered(long batch, long last) {}

  private Internals runner(int partitions) {
    return new Internals(new OfflineStateRepartitionRunner(session, location, partitions, true));
  }

  private static Entered entered(Internals runner) throws ReflectiveOperationException {
    long last = (Long) runner.call("getLastCommittedBatchId");
    return new Entered((Long) runner.call("createNewBatchIfNeeded", runner.call("getLastBatchId"), last), last);
  }

  /** Writes the state that a batch left for another kind of store. The query's logs stay as they are. */
  public void convert(long batch) throws ReflectiveOperationException {
    // Spark's reader and writer both take the number of a batch, for the version that it leaves.
    write(batch, batch, before, Set.of());
  }

  private static Set<String> names(String lines) {
    return lines.lines().collect(Collectors.toSet());
  }

  /** What was written: of each store, its partitions. */
  private record Written(List<StoreRewrite> stores, Map<String, StateStoreCheckpointInfo[]> infos) {
    String lines() {
      return stores.stream()
          .flatMap(
              store ->
                  Arrays.stream(infos.get(store.name()))
                      .filter(info -> info.stateStoreCkptId().isDefined())
                      .map(info -> store.operator() + " " + info.partitionId() + " " + info.stateStoreCkptId().get()))
          .collect(Collectors.joining("\n"));
    }
  }

  /**
   * Writes all stores.
   *
   * @param last the batch whose state is read
   * @param batch the batch whose state is written
   * @param partitions how many each store gets
   * @param split the stores that are split
   */
  private Written write(long last, long batch, int partitions, Set<String> split) throws ReflectiveOperationException {
    List<StoreRewrite> stores = stores(last, batch, partitions, split);
    List<StoreRewrite> far = new ArrayList<>();
    List<Share> near = new ArrayList<>();
    JavaSparkContext spark = JavaSparkContext.fromSparkContext(session.sparkContext());
    for (int at = 0; at < stores.size(); at++) {
      StoreRewrite store = stores.get(at);
      if (store.parents(0).length > MOST_PARENTS) {
        far.add(store);
      } else if (store.isSplit() || isReadOnce(store, spark.defaultParallelism())) {
        for (int first = 0; first < store.step(); first++) {
          near.add(new Share(at, store.siblings(first)));
        }
      } else {
        for (int to = 0; to < store.partitions(); to++) {
          near.add(new Share(at, new int[] {to}));
        }
      }
    }
    Map<String, List<StateWriting.Done>> done = new HashMap<>();
    stores.forEach(store -> done.put(store.name(), new ArrayList<>()));
    for (StateWriting.Done each :
        Tasks.run(
            spark,
            near.size(),
            number -> {
              Share share = near.get(number);
              return new StateWriting(stores.get(share.store()), share.partitions()).write();
            })) {
      done.get(each.store()).add(each);
    }
    far.forEach(store -> done.get(store.name()).addAll(shuffle(spark, store)));
    Map<String, StateStoreCheckpointInfo[]> infos = new HashMap<>();
    stores.forEach(store -> infos.put(store.name(), StateWriting.accountedFor(store, done.get(store.name()))));
    return new Written(stores, infos);
  }

  /**
   * Whether one task writes all new partitions that get something of the same old ones, and reads these once. Where
   * that would leave cores idle, each new partition has a task.
   */
  private static boolean isReadOnce(StoreRewrite store, int cores) {
    return store.suitsSortedFiles() && store.step() >= cores && store.siblings(0).length <= StoreRewrite.MOST_CHILDREN;
  }

  /** As Spark does it, where nearly every new partition gets something of nearly every old one. */
  private List<StateWriting.Done> shuffle(JavaSparkContext spark, StoreRewrite store) {
    CollectionAccumulator<long[]> read = spark.sc().collectionAccumulator();
    JavaRDD<InternalRow> rows =
        Tasks.flatMap(spark, store.partitionsBefore(), from -> MovedRows.all(store, from, read));
    JavaRDD<InternalRow> moved =
        session
            .internalCreateDataFrame(rows.rdd(), store.old().schema(), false)
            .repartition(store.partitions(), functions.col(OldStore.PARTITION_KEY))
            .queryExecution()
            .toRdd()
            .toJavaRDD();
    List<StateWriting.Done> done =
        new ArrayList<>(Tasks.run(moved, (to, each) -> new StateWriting(store, new int[] {to}).write(each)));
    done.add(StateWriting.Done.ofReading(store, read.value()));
    return done;
  }

  /** The ids of what was written, as Spark's commit log wants them: an option, empty in its first format. */
  private Object ids(long last, long batch, Written written) throws ReflectiveOperationException {
    if (next.equals(OldStore.HEAP)) {
      return Option.empty();
    }
    Map<Object, List<StateStoreCheckpointInfo[]>> found = new HashMap<>();
    written
        .stores()
        .forEach(s -> found.computeIfAbsent(s.operator(), id -> new ArrayList<>()).add(written.infos().get(s.name())));
    Map<Object, StateStoreCheckpointInfo[][]> arrays = new HashMap<>();
    found.forEach((operator, infos) -> arrays.put(operator, infos.toArray(new StateStoreCheckpointInfo[0][])));
    Object map = scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(arrays));
    return rewriter(last, batch).call("extractCheckpointIdsPerPartition", map);
  }

  @SuppressWarnings("unchecked")
  private List<StoreRewrite> stores(long last, long batch, int partitions, Set<String> split)
      throws ReflectiveOperationException {
    Internals rewriter = rewriter(last, batch);
    SQLConf sqlConf = (SQLConf) ((Tuple2<?, ?>) rewriter.call("createConfsFromOffsetLog"))._2();
    SerializableConfiguration hadoop = new SerializableConfiguration(conf);
    List<StoreRewrite> found = new ArrayList<>();
    for (OperatorStateMetadata operator :
        new StateMetadataPartitionReader(location, hadoop, last).allOperatorStateMetadata()) {
      long id = operator.operatorInfo().operatorId();
      String name = operator.operatorInfo().operatorName();
      boolean isSingle = single.contains(id);
      for (StateStoreMetadata store : CollectionConverters.asJava(operator.stateStoresMetadata())) {
        OldStore old = oldStore(last, id, store.storeName(), sqlConf);
        Object files =
            CollectionConverters.asJava(
                    (scala.collection.immutable.Map<?, ?>) rewriter.call("getStoreToSchemaFilesMap", operator))
                .get(store.storeName());
        Object variables = rewriter.call("getStateVariablesIfTWS", operator);
        Object families = rewriter.call("getWriterColFamilyInfoMap", id, store, files, variables);
        Object schemas = rewriter.call("createStoreSchemaProviderIfTWS", name, files);
        boolean isSplit = split.contains(id + "/" + store.storeName());
        found.add(
            new StoreRewrite(
                id,
                name,
                store.storeName(),
                old,
                isSingle ? 1 : before,
                location,
                batch,
                isSingle ? 1 : partitions,
                isSingle,
                isSplit,
                (scala.collection.immutable.Map<String, StatePartitionWriterColumnFamilyInfo>) families,
                (Option<StateSchemaProvider>) schemas,
                OldStore.conf(isSplit ? OldStore.withoutChangelogs(sqlConf) : sqlConf, next),
                hadoop));
      }
    }
    return found;
  }

  /**
   * A store as a batch left it. Spark is asked once: its source reads the logs and the schemas of the query each time.
   */
  private OldStore oldStore(long batch, long operator, String store, SQLConf sqlConf)
      throws ReflectiveOperationException {
    String key = batch + "/" + operator + "/" + store;
    OldStore found = known.get(key);
    if (found == null) {
      try {
        found = OldStore.of(session, location, operator, store, batch, sqlConf, provider);
      } catch (Exception e) {
        throw OldStore.refused(operator, store, e);
      }
      known.put(key, found);
    }
    return found;
  }

  private Internals rewriter(long last, long batch) {
    // Given a location to read from, Spark does not insist on a newer batch to write.
    return new Internals(
        new StateRewriter(
            session,
            last,
            batch,
            location,
            conf,
            Some.apply(location),
            Option.empty(),
            Some.apply(new StreamingQueryCheckpointMetadata(session, location, false))));
  }
}
