package io.pyspark.statestore.sink;

import java.util.List;

/**
 * Where a sink keeps what no reader is to see: below the directory of its list. Spark's list takes only what has the
 * name of a batch for a part of itself ({@code CompactibleFileStreamLog.getBatchIdFromFileName}). Spark never reads
 * data below that directory, whatever glob leads there ({@code FileStreamSink.ancestorIsMetadataDirectory}), and others
 * pass over names that begin with {@code _}. The directories that were beside the list before are still read and
 * cleaned.
 */
final class SinkPlaces {
  static final String LIST = "_spark_metadata";
  static final String STAGING = LIST + "/_staging";
  static final String WAITING = LIST + "/_waiting";
  static final String FORMER_STAGING = "_staging";
  static final String FORMER_WAITING = "_waiting";

  /** Where manifests of what waits may be, each beside the files that it names. */
  static final List<String> ALL_WAITING = List.of(WAITING, FORMER_WAITING);

  private SinkPlaces() {}
}
