package io.pyspark.statestore.testing;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.pyspark.statestore.log.MergedLogs;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.api.java.UDF1;

/** What the logs of one process have counted, for benchmarks that ask an executor through SQL. */
public final class GroupTimes implements UDF1<Long, String> {
  private static final long serialVersionUID = 1L;

  /** Takes so many milliseconds, so that other executors get tasks, too; says the counts by state directory. */
  @Override
  public String call(Long millis) throws InterruptedException, JsonProcessingException {
    Thread.sleep(millis);
    Map<String, Map<String, Long>> logs = new TreeMap<>();
    MergedLogs.all().forEach((state, log) -> logs.put(state, log.metrics().snapshot()));
    return new ObjectMapper().writeValueAsString(Map.of("pid", ProcessHandle.current().pid(), "logs", logs));
  }
}
