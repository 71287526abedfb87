package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;

/** The class of the provider door for the heap store. */
public class MergedHDFSBackedStateStoreProvider extends SharedMapsProvider {
  /** Spark calls this by reflection. */
  public MergedHDFSBackedStateStoreProvider() {
    ShimInfo.checkSpark();
  }

  /** In Spark 4.2 this writes a snapshot, then deletes what no version needs. */
  @Override
  public void doMaintenance() {
    writingSnapshot(super::doMaintenance);
  }
}
