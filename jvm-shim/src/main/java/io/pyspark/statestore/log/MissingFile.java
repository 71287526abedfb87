package io.pyspark.statestore.log;

import io.pyspark.statestore.StateFileNotFoundException;
import java.util.List;
import java.util.stream.Collectors;

/**
 * What is said of a logical file that is in no merged file: where Spark needs it, its own advice is to clear the
 * checkpoint.
 */
final class MissingFile {
  /** As many files are named. */
  private static final int NAMED = 5;

  private MissingFile() {}

  static StateFileNotFoundException of(LogContext context, String path) {
    List<MergedFile> files = context.index().files();
    return new StateFileNotFoundException(context.checkpoint() + "/state/" + path
        + " does not exist, and none of the " + files.size() + " merged files in " + context.storage().directory()
        + " has it. " + ignored(files) + "If the query needs it, a merged file was damaged, cut off or deleted: look with"
        + " pyspark-statestore verify " + context.checkpoint() + ", restore that file from a copy, and do not clear the"
        + " checkpoint.");
  }

  private static String ignored(List<MergedFile> files) {
    List<MergedFile> cut = files.stream().filter(file -> file.ignoredBytes() > 0).toList();
    if (cut.isEmpty()) {
      return "";
    }
    String named = cut.stream()
        .limit(NAMED)
        .map(file -> file.name() + " (" + file.ignoredBytes() + " bytes from offset "
            + (file.size() - file.ignoredBytes()) + " on)")
        .collect(Collectors.joining(", "));
    return "Ignored as torn, because no whole group ends there: " + named
        + (cut.size() > NAMED ? " and the ends of " + (cut.size() - NAMED) + " more" : "") + ". ";
  }
}
