package io.pyspark.statestore.balance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.SparkContext;

/** What Python's tests ask of this room. */
public final class Balances {
  private static final ObjectMapper JSON = new ObjectMapper();

  private Balances() {}

  /**
   * Makes the moves of several batches, one after the other.
   *
   * @param json {@code executors}: id, slots, and perhaps whether it takes more; {@code units}: pairs of place and
   *     weight; {@code most} moves in a batch; {@code batches}
   * @return JSON: for each batch the moves by unit, and whether all was even after it
   */
  public static String moves(String json) throws IOException {
    JsonNode asked = JSON.readTree(json);
    List<Balance.Executor> executors = new ArrayList<>();
    asked
        .get("executors")
        .forEach(
            e ->
                executors.add(
                    new Balance.Executor(
                        e.get(0).asText(), e.get(1).asInt(), 0, e.size() < 3 || e.get(2).asBoolean())));
    List<Balance.Unit> units = new ArrayList<>();
    asked.get("units").forEach(u -> units.add(new Balance.Unit(u.get(0).asText(), u.get(1).asDouble())));
    ArrayNode batches = JSON.createArrayNode();
    for (int i = 0; i < asked.get("batches").asInt(); i++) {
      Map<Integer, String> moves = new Balance(executors, units).moves(asked.get("most").asInt());
      ObjectNode said = batches.addObject();
      ObjectNode moved = said.putObject("moves");
      moves.forEach(
          (unit, to) -> {
            moved.put(String.valueOf(unit), to);
            units.set(unit, new Balance.Unit(to, units.get(unit).weight()));
          });
      said.put("even", new Balance(executors, units).isEven());
    }
    return JSON.writeValueAsString(batches);
  }

  /** From now on so much is added to what a task takes: with much, it makes no difference. In production 200. */
  public static void leastMillis(long ms) {
    Rebalancer.leastMillis = ms;
  }

  /** How many runs the driver knows. */
  public static int knownRuns() {
    return Rebalancer.knownRuns();
  }

  /** How many partitions it has wished elsewhere. */
  public static long moved() {
    return Rebalancer.moved();
  }

  /** The ids of executors that take tasks, each in a line. */
  public static String takers(SparkContext context) {
    return String.join("\n", Places.takers(context).keySet());
  }

  /** JSON: of each partition of an operator, the executor of each of its stores. */
  public static String places(String location, String run, long operator, int partitions) throws IOException {
    Places places = new Places(location, UUID.fromString(run));
    ArrayNode found = JSON.createArrayNode();
    for (int i = 0; i < partitions; i++) {
      ObjectNode stores = found.addObject();
      for (String store : places.storesOf(operator, i)) {
        stores.put(store, places.of(operator, i, store));
      }
    }
    return JSON.writeValueAsString(found);
  }
}
