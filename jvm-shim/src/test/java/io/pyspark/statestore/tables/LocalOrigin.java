package io.pyspark.statestore.tables;

import java.io.IOException;
import java.nio.file.Path;

/** A file's origin, for tests that have no checkpoint: it counts nothing, and takes all that has come for right. */
abstract class LocalOrigin implements PartialFile.Origin {
  final LazyFiles files;

  LocalOrigin(LazyFiles files) {
    this.files = files;
  }

  @Override
  public void arrives() {
    files.arrived();
  }

  @Override
  public void arrived(int bytes, PartialFile.Why why) {}

  @Override
  public void check(Path file, int crc32c) throws IOException {}

  @Override
  public void decided(PartialFile file, IOException failure) {
    files.decided(file, failure);
  }

  @Override
  public void undecided(PartialFile file) {
    files.undecided(file);
  }

  @Override
  public void postponed() {}
}
