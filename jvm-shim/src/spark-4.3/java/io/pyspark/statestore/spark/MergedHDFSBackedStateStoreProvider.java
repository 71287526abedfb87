package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;

/** The class of the provider door for the heap store. */
public class MergedHDFSBackedStateStoreProvider extends SharedMapsProvider {
  /** Spark calls this by reflection. */
  public MergedHDFSBackedStateStoreProvider() {
    ShimInfo.checkSpark();
  }

  @Override
  public void doSnapshotMaintenance() {
    writingSnapshot(super::doSnapshotMaintenance);
  }
}
