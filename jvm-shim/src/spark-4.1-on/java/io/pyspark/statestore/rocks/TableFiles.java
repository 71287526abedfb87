package io.pyspark.statestore.rocks;

import io.pyspark.statestore.tables.EarlyFiles;
import io.pyspark.statestore.tables.LazyFiles;
import java.nio.file.Path;
import org.rocksdb.AbstractEventListener;
import org.rocksdb.FileOperationInfo;
import org.rocksdb.Status;
import org.rocksdb.TableFileCreationInfo;
import org.rocksdb.TableFileDeletionInfo;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hears from RocksDB, in its threads, which SSTs it makes and deletes, and, where only parts of files are on the disk,
 * which parts it reads. What goes wrong here must not reach RocksDB.
 */
public final class TableFiles extends AbstractEventListener {
  private static final Logger LOG = LoggerFactory.getLogger(TableFiles.class);

  /** Null where SSTs are uploaded with their snapshots. */
  private final EarlyFiles early;

  /** Null where files are whole. */
  private final LazyFiles lazy;

  private final boolean hearsReads;

  /**
   * Tells what it hears to those of one store.
   *
   * @param early null where SSTs are uploaded with their snapshots
   * @param files null where files are whole
   */
  public TableFiles(EarlyFiles early, LazyFiles files) {
    super(events(files != null && files.isCached()));
    this.early = early;
    lazy = files;
    hearsReads = files != null && files.isCached();
  }

  private static EnabledEventCallback[] events(boolean readsToo) {
    return readsToo
        ? new EnabledEventCallback[] {
          EnabledEventCallback.ON_TABLE_FILE_CREATED,
          EnabledEventCallback.ON_TABLE_FILE_DELETED,
          EnabledEventCallback.ON_FILE_READ_FINISH,
          EnabledEventCallback.SHOULD_BE_NOTIFIED_ON_FILE_IO
        }
        : new EnabledEventCallback[] {
          EnabledEventCallback.ON_TABLE_FILE_CREATED, EnabledEventCallback.ON_TABLE_FILE_DELETED
        };
  }

  @Override
  public boolean shouldBeNotifiedOnFileIO() {
    return hearsReads;
  }

  @Override
  public void onTableFileCreated(TableFileCreationInfo info) {
    tell(
        () -> {
          if (!isOk(info.getStatus())) {
            return;
          }
          Path file = Path.of(info.getFilePath());
          if (early != null) {
            early.created(file, info.getFileSize());
          }
          if (lazy != null) {
            lazy.created(file.getFileName().toString(), info.getFileSize());
          }
        });
  }

  @Override
  public void onTableFileDeleted(TableFileDeletionInfo info) {
    tell(
        () -> {
          Path file = Path.of(info.getFilePath());
          if (early != null) {
            early.deleted(file);
          }
          if (lazy != null) {
            lazy.deleted(file.getFileName().toString());
          }
        });
  }

  @Override
  public void onFileReadFinish(FileOperationInfo info) {
    tell(
        () -> {
          String path = info.getPath();
          String name = path.substring(path.lastIndexOf('/') + 1);
          lazy.wasRead(name, info.getOffset(), info.getOffset() + info.getLength());
        });
  }

  private static boolean isOk(Status status) {
    return status == null || status.getCode() == Status.Code.Ok;
  }

  private static void tell(Runnable event) {
    try {
      event.run();
    } catch (RuntimeException | Error e) {
      LOG.info("What RocksDB says of an SST is not taken note of", e);
    }
  }
}
