package io.pyspark.statestore.reshape;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreColFamilySchema;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.util.Utils;
import scala.Option;

/**
 * A partition of Spark's heap store that begins with a snapshot of any version.
 *
 * <p>Spark's heap store begins with version 0, and writes nothing else into an empty directory. So the rows become its
 * version 1 in a local directory, with a snapshot, whose bytes are the same for every version; these are then written
 * where they belong, by the store's own file manager.
 */
final class HeapSnapshot {
  private final StoreRewrite store;
  private final int to;
  private final StateStoreColFamilySchema schema;

  HeapSnapshot(StoreRewrite store, int to) {
    this.store = store;
    this.to = to;
    schema = store.families().apply(StoreRewrite.DEFAULT_FAMILY).schema();
  }

  StateStoreCheckpointInfo write(Iterator<InternalRow> rows) throws IOException {
    File local = Utils.createTempDir(Utils.getLocalDir(SparkEnv.get().conf()), "reshape");
    try {
      StateStoreId id = new StateStoreId(local.toURI().toString(), store.operator(), to, store.storeName());
      StateStoreProvider first = open(id);
      try {
        fill(first, rows);
      } finally {
        first.close();
      }
      publish(new File(new Path(id.storeCheckpointLocation(), "1.snapshot").toUri().getPath()));
    } finally {
      Utils.deleteRecursively(local);
    }
    return new StateStoreCheckpointInfo(to, store.batch() + 1, Option.empty(), Option.empty());
  }

  private void fill(StateStoreProvider first, Iterator<InternalRow> rows) {
    StateStore state = first.getStore(0, Option.empty(), true, false);
    try {
      while (rows.hasNext()) {
        InternalRow row = rows.next();
        state.put(
            MovedRows.unsafe(row.getBinary(1), schema.keySchema().length()),
            MovedRows.unsafe(row.getBinary(2), schema.valueSchema().length()),
            StoreRewrite.DEFAULT_FAMILY);
      }
      state.commit();
    } finally {
      if (!state.hasCommitted()) {
        state.abort();
      }
    }
  }

  private void publish(File snapshot) throws IOException {
    StateStoreId id =
        new StateStoreId(new Path(store.location(), "state").toString(), store.operator(), to, store.storeName());
    HDFSBackedStateStoreProvider provider = (HDFSBackedStateStoreProvider) open(id);
    try {
      Path target = new Path(id.storeCheckpointLocation(), store.batch() + 1 + ".snapshot");
      CheckpointFileManager files = provider.fm();
      if (!files.exists(target.getParent())) {
        files.mkdirs(target.getParent());
      }
      CheckpointFileManager.CancellableFSDataOutputStream out = files.createAtomic(target, true);
      boolean isWhole = false;
      try {
        Files.copy(snapshot.toPath(), (OutputStream) out);
        isWhole = true;
      } finally {
        if (!isWhole) {
          out.cancel();
        }
      }
      out.close();
    } finally {
      provider.close();
    }
  }

  private StateStoreProvider open(StateStoreId id) {
    return StateStoreProvider.createAndInit(
        new StateStoreProviderId(id, UUID.randomUUID()),
        schema.keySchema(),
        schema.valueSchema(),
        schema.keyStateEncoderSpec().get(),
        false,
        store.conf(),
        store.hadoop().value(),
        false,
        Option.empty());
  }
}
