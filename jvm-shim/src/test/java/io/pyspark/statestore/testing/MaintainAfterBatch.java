package io.pyspark.statestore.testing;

import io.pyspark.statestore.log.MergedLogs;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.java.function.VoidFunction2;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.execution.streaming.state.StateStore$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;

/**
 * A function for {@code foreachBatch}. It computes the batch, then does all the maintenance that Spark would do some
 * time later, and cleans the checkpoint's merged files: at once, and in the same order each time.
 */
public final class MaintainAfterBatch implements VoidFunction2<Dataset<Row>, Long> {
  private static final long serialVersionUID = 1L;

  private final String checkpoint;

  /**
   * @param checkpoint a text that the location of the checkpoint contains
   */
  public MaintainAfterBatch(String checkpoint) {
    this.checkpoint = checkpoint;
  }

  @Override
  public void call(Dataset<Row> batch, Long number) throws Exception {
    batch.write().format("noop").mode("overwrite").save();
    List<Throwable> failures = new ArrayList<>();
    // The shim decides by the thread's name how new the index must be.
    Thread maintenance = new Thread(this::maintain, "state-store-maintenance-by-hand");
    maintenance.setUncaughtExceptionHandler((thread, failure) -> failures.add(failure));
    maintenance.start();
    maintenance.join();
    if (!failures.isEmpty()) {
      throw new IllegalStateException("maintenance failed", failures.get(0));
    }
  }

  private void maintain() {
    for (StateStoreProvider provider : providers()) {
      if (provider.stateStoreId().checkpointRootLocation().contains(checkpoint)) {
        provider.doMaintenance();
      }
    }
    MergedLogs.all()
        .forEach(
            (state, log) -> {
              if (state.contains(checkpoint)) {
                log.clean();
                // What one pass has emptied the next one unlinks.
                log.clean();
              }
            });
  }

  private static List<StateStoreProvider> providers() {
    List<StateStoreProvider> providers = new ArrayList<>();
    loadedProviders().values().foreach(provider -> providers.add((StateStoreProvider) provider));
    return providers;
  }

  /** Spark's private table of loaded stores, which is also its lock. */
  static scala.collection.mutable.HashMap<?, ?> loadedProviders() {
    try {
      Method loaded = StateStore$.class.getDeclaredMethod("loadedProviders");
      loaded.setAccessible(true);
      return (scala.collection.mutable.HashMap<?, ?>) loaded.invoke(StateStore$.MODULE$);
    } catch (NoSuchMethodException | IllegalAccessException | InvocationTargetException e) {
      throw new IllegalStateException(e);
    }
  }
}
