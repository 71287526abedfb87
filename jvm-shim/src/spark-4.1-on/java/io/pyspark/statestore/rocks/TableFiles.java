package io.pyspark.statestore.rocks;

import io.pyspark.statestore.tables.EarlyFiles;
import java.nio.file.Path;
import org.rocksdb.AbstractEventListener;
import org.rocksdb.Status;
import org.rocksdb.TableFileCreationInfo;
import org.rocksdb.TableFileDeletionInfo;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Hears from RocksDB, in its threads, which SSTs it makes and deletes. What goes wrong here must not reach RocksDB. */
public final class TableFiles extends AbstractEventListener {
  private static final Logger LOG = LoggerFactory.getLogger(TableFiles.class);

  private final EarlyFiles files;

  /** Tells what it hears to those of one store. */
  public TableFiles(EarlyFiles files) {
    super(EnabledEventCallback.ON_TABLE_FILE_CREATED, EnabledEventCallback.ON_TABLE_FILE_DELETED);
    this.files = files;
  }

  @Override
  public void onTableFileCreated(TableFileCreationInfo info) {
    tell(
        () -> {
          if (isOk(info.getStatus())) {
            files.created(Path.of(info.getFilePath()), info.getFileSize());
          }
        });
  }

  @Override
  public void onTableFileDeleted(TableFileDeletionInfo info) {
    tell(() -> files.deleted(Path.of(info.getFilePath())));
  }

  private static boolean isOk(Status status) {
    return status == null || status.getCode() == Status.Code.Ok;
  }

  private static void tell(Runnable event) {
    try {
      event.run();
    } catch (RuntimeException | Error e) {
      LOG.info("An SST is not uploaded before its snapshot", e);
    }
  }
}
