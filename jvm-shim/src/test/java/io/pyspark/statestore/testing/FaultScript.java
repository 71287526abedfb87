package io.pyspark.statestore.testing;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.pyspark.statestore.log.MergedLog;
import io.pyspark.statestore.log.MergedLogs;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Runs the same short script on a checkpoint again and again, each time with another call of its file system failing.
 *
 * <p>A step is a JSON object with {@code do}: {@code write} (path, token, size), {@code together} (writes: several at
 * the same time), {@code stage} (path, token, size), {@code delete}, {@code read}, {@code list} (path), {@code clean},
 * {@code refresh}, {@code seal}, {@code heal} (nothing fails any more). Each step is a task of its own, with a thread
 * that can be killed.
 */
public final class FaultScript {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String DONE = "done";
  private static final long PATIENCE_SECONDS = 60;

  /** A killed task may have to wait for another thread; one that waits longer than this is reported. */
  private static final long AFTER_KILL_SECONDS = 10;

  private final FileSystem fs;
  private final String scheme;
  private final java.nio.file.Path checkpoint;
  private final ExecutorService threads = Executors.newCachedThreadPool();

  /** {@link #DONE}, or the place where a thread hangs. */
  private final BlockingQueue<String> events = new LinkedBlockingQueue<>();

  private FaultScript(String scheme, java.nio.file.Path checkpoint, JsonNode settings) throws IOException {
    Configuration conf = new Configuration(false);
    settings.properties().forEach(e -> conf.set(e.getKey(), e.getValue().asText()));
    this.fs = FileSystem.newInstance(URI.create("merged+" + scheme + ":///"), conf);
    this.scheme = scheme;
    this.checkpoint = checkpoint;
  }

  /**
   * Runs a script once for each call of an operation, with that call failing. The last run makes fewer calls than its
   * number, so nothing fails in it. Each run has a directory of its own, named after the number.
   *
   * @param directory the directory of all runs
   * @param fault JSON: scheme, conf, operation, contains, kind, times, interrupts (true ends a call that hangs by
   *     killing its task, false by letting it go on), numbers (which calls fail, a run each, instead of every call;
   *     they reach beyond the last call)
   * @param script JSON list of steps
   * @return JSON list, of each run: n, how many calls failed, and the results of its steps
   */
  public static String runAll(String directory, String fault, String script) throws Exception {
    ArrayNode runs = JSON.createArrayNode();
    for (FaultScript each : allRuns(directory, JSON.readTree(fault), JSON.readTree(script), runs)) {
      each.end();
    }
    return JSON.writeValueAsString(runs);
  }

  /**
   * As {@link #runAll}, for several faults, each in a directory named after its place in the list. The processes live
   * on for so many milliseconds, and clean before they end.
   */
  public static void runAllAndWait(String directory, String faults, String script, long millis, int cleanings)
      throws Exception {
    List<FaultScript> all = new ArrayList<>();
    for (JsonNode fault : JSON.readTree(faults)) {
      String own = directory + "/" + all.size();
      all.addAll(allRuns(own, fault, JSON.readTree(script), JSON.createArrayNode()));
    }
    Thread.sleep(millis);
    for (FaultScript each : all) {
      for (int i = 0; i < cleanings; i++) {
        each.log().clean();
      }
      each.end();
    }
  }

  private static List<FaultScript> allRuns(String directory, JsonNode fault, JsonNode script, ArrayNode runs)
      throws Exception {
    List<FaultScript> all = new ArrayList<>();
    int fired;
    int runsBefore = 0;
    do {
      int n = fault.has("numbers") ? fault.get("numbers").get(runsBefore).asInt() : runsBefore + 1;
      runsBefore++;
      Faults.clear();
      java.nio.file.Path checkpoint = java.nio.file.Path.of(directory, Integer.toString(n));
      Files.createDirectories(checkpoint.resolve("state/_merged"));
      String contains = checkpoint + "/" + fault.get("contains").asText();
      Faults.addRule(
          fault.get("operation").asText(), contains, n, fault.path("times").asInt(1), fault.get("kind").asText());
      ObjectNode run = runs.addObject().put("n", n);
      all.add(new FaultScript(fault.get("scheme").asText(), checkpoint, fault.get("conf")));
      all.get(all.size() - 1).run(script, fault.path("interrupts").asBoolean(false), run);
      fired = run.get("fired").asInt();
    } while (fired > 0);
    Faults.clear();
    return all;
  }

  /** Runs a script once, as a later process in which nothing fails. */
  public static String runHealthy(String checkpoint, String scheme, String conf, String script) throws Exception {
    Faults.clear();
    ObjectNode run = JSON.createObjectNode();
    FaultScript self = new FaultScript(scheme, java.nio.file.Path.of(checkpoint), JSON.readTree(conf));
    self.run(JSON.readTree(script), false, run);
    self.end();
    return JSON.writeValueAsString(run);
  }

  private void run(JsonNode script, boolean interrupts, ObjectNode results) throws Exception {
    ArrayNode steps = results.putArray("steps");
    int fired = 0;
    Faults.onHang(events::add);
    for (JsonNode step : script) {
      if (step.get("do").asText().equals("heal")) {
        fired = Faults.fired();
        Faults.clear();
      }
      steps.add(runAsTask(step, interrupts));
    }
    results.put("fired", fired + Faults.fired());
    Faults.release();
    ObjectNode metrics = results.putObject("metrics");
    log().metrics().snapshot().forEach(metrics::put);
  }

  /** Kills the process: what it has not flushed is gone. */
  private void end() throws IOException {
    MergedLogs.forgetBelow(new Path(scheme + ":" + checkpoint));
    threads.shutdownNow();
    fs.close();
  }

  private ObjectNode runAsTask(JsonNode step, boolean interrupts) throws Exception {
    ObjectNode results = JSON.createObjectNode();
    Thread task =
        new Thread(
            () -> {
              try {
                perform(step, results);
              } catch (Throwable e) {
                results.put("error", chain(e));
              }
              events.add(DONE);
            });
    task.setDaemon(true);
    Faults.victims(task);
    int before = Faults.fired();
    task.start();
    boolean hung = false;
    String event = next(PATIENCE_SECONDS);
    while (event != null && !event.equals(DONE)) {
      hung = true;
      String outlived = null;
      if (interrupts) {
        Faults.kill();
        String hangs = event;
        event = next(AFTER_KILL_SECONDS);
        outlived = event == null ? hangs + " " + Arrays.toString(task.getStackTrace()) : null;
      }
      Faults.release();
      event = event != null && event.equals(DONE) ? event : next(PATIENCE_SECONDS);
      if (outlived != null && event != null) {
        results.put("outlived_kill", outlived);
      }
    }
    ObjectNode result = event == null ? JSON.createObjectNode() : results;
    if (event == null) {
      result.put("stuck", Arrays.toString(task.getStackTrace()));
    }
    // An earlier step may have begun the call that hangs, and this step waits for what it fetches.
    result.put("fired", Math.max(Faults.fired() - before, hung ? 1 : 0));
    return result;
  }

  private String next(long seconds) throws InterruptedException {
    return events.poll(seconds, TimeUnit.SECONDS);
  }

  private void perform(JsonNode step, ObjectNode results) throws Exception {
    String path = step.path("path").asText();
    switch (step.get("do").asText()) {
      case "write" -> write(step);
      case "together" -> together(step.get("writes"), results);
      case "stage" -> stage(step);
      case "delete" -> results.put("value", fs.delete(at(path), false));
      case "read" -> results.put("value", read(path));
      case "list" -> results.put("value", names(path));
      case "clean" -> results.put("value", log().clean());
      case "refresh" -> log().refresh();
      case "seal" -> log().seal();
      case "heal" -> results.put("value", true);
      default -> throw new IllegalArgumentException("no such step: " + step);
    }
  }

  private void write(JsonNode step) throws IOException {
    Storm.write(fs, at(step.get("path").asText()), content(step));
  }

  /** Commits in several tasks at the same time, and notes the error of each, or null. */
  private void together(JsonNode writes, ObjectNode results) throws Exception {
    List<Future<Object>> commits = new ArrayList<>();
    for (JsonNode each : writes) {
      FSDataOutputStream out = fs.create(at(each.get("path").asText()), true);
      out.write(content(each));
      commits.add(
          threads.submit(
              () -> {
                Faults.victims(Thread.currentThread());
                out.close();
                return null;
              }));
    }
    ArrayNode errors = results.putArray("errors");
    for (Future<Object> commit : commits) {
      errors.add(errorOf(commit));
    }
  }

  /** Waits for a commit. An interrupt is meant for the thread that commits, not for this one. */
  private static String errorOf(Future<Object> commit) throws Exception {
    while (true) {
      try {
        commit.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        return null;
      } catch (ExecutionException e) {
        return chain(e.getCause());
      } catch (InterruptedException e) {
        Thread.interrupted();
      }
    }
  }

  private void stage(JsonNode step) throws IOException {
    String path = step.get("path").asText();
    java.nio.file.Path local = checkpoint.resolve(path.substring(path.lastIndexOf('/') + 1));
    Files.write(local, content(step));
    fs.copyFromLocalFile(true, true, new Path("file:" + local), at(path));
  }

  private String read(String path) throws IOException {
    try (FSDataInputStream in = fs.open(at(path))) {
      return describe(in.readAllBytes());
    } catch (FileNotFoundException e) {
      return null;
    }
  }

  private String names(String path) throws IOException {
    try {
      return Arrays.stream(fs.listStatus(at(path))).map(s -> s.getPath().getName()).sorted().toList().toString();
    } catch (FileNotFoundException e) {
      return "[]";
    }
  }

  private MergedLog log() throws IOException {
    if (openLog() == null) {
      fs.exists(at("0/0"));
    }
    return openLog();
  }

  private MergedLog openLog() {
    return MergedLogs.open(new Path(scheme + ":" + checkpoint + "/state"));
  }

  private Path at(String relative) {
    return new Path("merged+" + scheme + ":" + checkpoint + "/state/" + relative);
  }

  /** The token, repeated up to the size. */
  private static byte[] content(JsonNode step) {
    byte[] token = (step.get("token").asText() + " ").getBytes(StandardCharsets.UTF_8);
    byte[] bytes = new byte[step.get("size").asInt()];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = token[i % token.length];
    }
    return bytes;
  }

  /** The token and size that {@link #content} was made from; other bytes as they are. */
  private static String describe(byte[] bytes) {
    String text = new String(bytes, StandardCharsets.UTF_8);
    String token = text.split(" ", 2)[0];
    ObjectNode step = JSON.createObjectNode().put("token", token).put("size", bytes.length);
    return Arrays.equals(content(step), bytes) ? token + ":" + bytes.length : "garbage " + text;
  }

  private static String chain(Throwable error) {
    List<String> said = new ArrayList<>();
    for (Throwable e = error; e != null && said.size() < 20; e = e.getCause()) {
      said.add(e.toString());
    }
    return String.join("\ncaused by ", said);
  }
}
