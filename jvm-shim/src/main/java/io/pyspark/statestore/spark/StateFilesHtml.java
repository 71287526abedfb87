package io.pyspark.statestore.spark;

import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.spark.StateFilesHistory.Row;
import io.pyspark.statestore.spark.StateFilesHistory.Sample;
import io.pyspark.statestore.spark.StateFilesHistory.View;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.function.Function;
import java.util.function.ToDoubleFunction;

/**
 * The page of {@link StateFilesTab}: a line for each checkpoint, and all of one, with what was there before. It loads
 * nothing but what Spark's pages load, and has no scripts of its own; Spark's sort the table.
 */
final class StateFilesHtml {
  private static final String UNKNOWN = "–";
  /** A figure with its unit stays on one line. */
  private static final int SHORT = 10;
  private static final int WIDTH = 560;
  private static final int HEIGHT = 120;

  private final View view;

  StateFilesHtml(View view) {
    this.view = view;
  }

  /**
   * A column of the overview, and a line of a checkpoint's own table.
   *
   * @param key what the table is sorted by: the exact figure
   * @param shown what people see
   */
  private record Column(
      String name, String tip, ToDoubleFunction<Row> key, Function<Row, String> shown) {}

  private List<Column> columns() {
    return List.of(
        figure("Logical files", "live files as Spark names them", Figure.LIVE_FILES, StateFilesHtml::count),
        figure("Live bytes", "of these files", Figure.LIVE_BYTES, StateFilesHtml::bytes),
        figure("Merged files", "in _merged/", Figure.FILES, StateFilesHtml::count),
        figure("Bytes on disk", "of all merged files", Figure.PHYSICAL_BYTES, StateFilesHtml::bytes),
        new Column("Amplification", "bytes on disk for each live one", StateFilesHtml::amplification,
            row -> number(amplification(row), "")),
        figure("Commits", "by all processes", Figure.COMMITS, StateFilesHtml::count),
        figure("Groups", "flushes that made them durable", Figure.GROUPS, StateFilesHtml::count),
        new Column("Commits per group", "how many commits share a flush",
            row -> ratio(row.of(Figure.COMMITS), row.of(Figure.GROUPS)),
            row -> number(ratio(row.of(Figure.COMMITS), row.of(Figure.GROUPS)), "")),
        new Column("Mean flush", "writing and flushing a group", row -> millis(row, Figure.WRITE_NANOS, Figure.GROUPS),
            row -> number(millis(row, Figure.WRITE_NANOS, Figure.GROUPS), " ms")),
        new Column("Mean commit", "from the moment a commit is queued until it is durable",
            row -> millis(row, Figure.WAIT_NANOS, Figure.COMMITS),
            row -> number(millis(row, Figure.WAIT_NANOS, Figure.COMMITS), " ms")),
        figure("Failed groups", "Spark retries their tasks", Figure.FAILED_GROUPS, StateFilesHtml::count),
        new Column("Index service", "questions of executors to the driver", row -> row.of(Figure.INDEX_QUESTIONS),
            this::service),
        new Column("Last maintenance", "the last cleaning pass", row -> row.of(Figure.PASS_ENDED_MS), this::maintenance),
        new Column("Last change", "when a process told something new", Row::changedMs, row -> ago(row.changedMs())));
  }

  private static Column figure(String name, String tip, Figure figure, Function<Long, String> shown) {
    return new Column(name, tip, row -> row.of(figure), row -> shown.apply(row.of(figure)));
  }

  /**
   * The page.
   *
   * @param chosen the number of a checkpoint; anything else is none
   */
  String page(String chosen) {
    Row detailed = view.rows().size() == 1 ? view.rows().get(0) : null;
    for (Row row : view.rows()) {
      detailed = String.valueOf(row.number()).equals(chosen) ? row : detailed;
    }
    StringBuilder html = new StringBuilder();
    html.append("<p>Checkpoints with merged state that this application has worked on. The driver and the executors tell")
        .append(" of them every few seconds; counts begin with the application.</p>");
    if (view.rows().isEmpty()) {
      return html.append("<p><b>No query with merged state has run yet.</b></p>").toString();
    }
    if (detailed == null || view.rows().size() > 1) {
      overview(html);
    }
    if (detailed != null) {
      detail(html, detailed);
    }
    return html.toString();
  }

  private void overview(StringBuilder html) {
    html.append("<div style=\"overflow-x:auto\"><table id=\"state-files\"")
        .append(" class=\"table table-bordered table-sm table-striped sortable\"><thead><tr><th>Checkpoint</th>");
    List<Column> columns = columns();
    for (Column column : columns) {
      html.append("<th title=\"").append(text(column.tip())).append("\">").append(text(column.name())).append("</th>");
    }
    html.append("</tr></thead><tbody>");
    for (Row row : view.rows()) {
      html.append("<tr><td><a href=\"?checkpoint=").append(row.number()).append("\">").append(path(row))
          .append("</a></td>");
      columns.forEach(column -> cell(html, column, row));
      html.append("</tr>");
    }
    html.append("</tbody></table></div>");
    if (view.more()) {
      html.append("<p>These are the ").append(view.rows().size()).append(" that changed last; others are not kept.</p>");
    }
  }

  private static void cell(StringBuilder html, Column column, Row row) {
    String shown = column.shown().apply(row);
    html.append("<td sorttable_customkey=\"").append(exact(column.key().applyAsDouble(row))).append('"')
        .append(shown.length() <= SHORT ? " style=\"white-space:nowrap\">" : ">").append(text(shown)).append("</td>");
  }

  private void detail(StringBuilder html, Row row) {
    html.append("<h4 style=\"overflow-wrap:anywhere\">").append(path(row)).append("</h4>")
        .append("<div style=\"display:flex;flex-wrap:wrap;gap:1.5rem\">")
        .append("<table id=\"state-files-of-one\" class=\"table table-sm table-striped\" style=\"width:auto\"><tbody>");
    List<Column> columns = new ArrayList<>(columns());
    columns.add(figure("Bytes written", "in groups", Figure.WRITTEN_BYTES, StateFilesHtml::bytes));
    columns.add(figure("Bytes moved", "by maintenance", Figure.RELOCATED_BYTES, StateFilesHtml::bytes));
    columns.add(figure("Files deleted", "by maintenance", Figure.UNLINKED_FILES, StateFilesHtml::count));
    columns.add(figure("Failed deletes", "tried again later", Figure.FAILED_DELETES, StateFilesHtml::count));
    for (Column column : columns) {
      html.append("<tr><th title=\"").append(text(column.tip())).append("\">").append(text(column.name())).append("</th>");
      cell(html, column, row);
      html.append("</tr>");
    }
    html.append("</tbody></table><div style=\"flex:1 1 20rem;min-width:0;max-width:").append(WIDTH).append("px\">");
    List<Sample> samples = row.samples();
    chart(html, "Bytes on disk (line) and live (dashes)", StateFilesHtml::bytes, samples,
        sample -> known(sample.physicalBytes()), sample -> known(sample.liveBytes()));
    chart(html, "Merged files", StateFilesHtml::count, samples, sample -> known(sample.files()), null);
    chart(html, "Mean flush", micros -> number(micros / 1e3, " ms"), flushes(samples), Sample::writeNanos, null);
    html.append("</div></div>");
  }

  /** The mean flush between two samples, in microseconds, as samples. */
  private static List<Sample> flushes(List<Sample> samples) {
    List<Sample> means = new ArrayList<>();
    for (int i = 1; i < samples.size(); i++) {
      Sample from = samples.get(i - 1);
      Sample to = samples.get(i);
      long groups = to.groups() - from.groups();
      if (groups > 0) {
        long mean = Math.round((to.writeNanos() - from.writeNanos()) / 1e3 / groups);
        means.add(new Sample(to.atMs(), 0, 0, 0, groups, mean));
      }
    }
    return means;
  }

  private void chart(
      StringBuilder html, String title, Function<Long, String> unit, List<Sample> samples, ToDoubleFunction<Sample> line,
      ToDoubleFunction<Sample> dashes) {
    double top = samples.stream()
        .mapToDouble(s -> dashes == null ? line.applyAsDouble(s) : Math.max(line.applyAsDouble(s), dashes.applyAsDouble(s)))
        .max().orElse(0);
    html.append("<div style=\"margin-bottom:1rem\"><b>").append(text(title)).append("</b>");
    if (samples.isEmpty()) {
      html.append("<p>Nothing yet.</p></div>");
      return;
    }
    html.append(", up to ").append(text(unit.apply((long) top)))
        .append("<svg role=\"img\" aria-label=\"").append(text(title)).append("\" viewBox=\"0 0 ").append(WIDTH).append(' ')
        .append(HEIGHT).append("\" style=\"display:block;width:100%;height:auto;border-left:1px solid #8888;")
        .append("border-bottom:1px solid #8888\">");
    polyline(html, samples, line, top, "");
    if (dashes != null) {
      polyline(html, samples, dashes, top, " stroke-dasharray=\"6 5\"");
    }
    html.append("</svg><div style=\"display:flex;justify-content:space-between\"><small>").append(ago(samples.get(0).atMs()))
        .append("</small><small>now</small></div></div>");
  }

  /** Steps from sample to sample: what has not changed is not sampled. The last one holds until now. */
  private void polyline(
      StringBuilder html, List<Sample> samples, ToDoubleFunction<Sample> figure, double top, String attributes) {
    long from = samples.get(0).atMs();
    double span = Math.max(1, view.atMs() - from);
    html.append("<polyline fill=\"none\" stroke=\"#4c78a8\" stroke-width=\"2\"").append(attributes).append(" points=\"");
    double before = figure.applyAsDouble(samples.get(0));
    for (Sample sample : samples) {
      double x = WIDTH * (sample.atMs() - from) / span;
      point(html, x, before, top);
      before = figure.applyAsDouble(sample);
      point(html, x, before, top);
    }
    point(html, WIDTH, before, top);
    html.append("\"/>");
  }

  private static void point(StringBuilder html, double x, double value, double top) {
    double y = top <= 0 ? HEIGHT - 1 : HEIGHT - 1 - (HEIGHT - 4) * value / top;
    html.append(String.format(Locale.ROOT, "%.1f,%.1f ", x, y));
  }

  // ---- figures as text

  private String service(Row row) {
    if (row.of(Figure.SERVED) != 1) {
      return row.of(Figure.SERVED) == 0 ? "off" : UNKNOWN;
    }
    long questions = row.of(Figure.INDEX_QUESTIONS);
    return questions == 0 ? "on" : count(questions) + " questions, the last " + ago(row.askedMs());
  }

  private String maintenance(Row row) {
    long endedMs = row.of(Figure.PASS_ENDED_MS);
    if (endedMs == Figure.UNKNOWN) {
      return "none yet";
    }
    String took = ago(endedMs) + ", took " + count(row.of(Figure.PASS_TOOK_MS)) + " ms";
    return row.of(Figure.PASS_STOPPED) == 1 ? took + ", stopped: see the log" : took;
  }

  private String ago(long atMs) {
    long seconds = Math.max(0, (view.atMs() - atMs) / 1000);
    if (seconds < 120) {
      return seconds + " s ago";
    }
    return seconds < 7200 ? seconds / 60 + " min ago" : seconds / 3600 + " h ago";
  }

  private static double amplification(Row row) {
    return ratio(row.of(Figure.PHYSICAL_BYTES), row.of(Figure.LIVE_BYTES));
  }

  private static double millis(Row row, Figure nanos, Figure of) {
    return ratio(row.of(nanos), row.of(of)) / 1e6;
  }

  private static double ratio(long of, long by) {
    return by <= 0 ? Double.NaN : (double) of / by;
  }

  private static double known(long value) {
    return Math.max(0, value);
  }

  private static String number(double value, String unit) {
    return Double.isNaN(value) ? UNKNOWN : String.format(Locale.ROOT, "%.2f%s", value, unit);
  }

  private static String exact(double value) {
    return value == Math.rint(value) ? String.valueOf((long) value) : String.format(Locale.ROOT, "%.6f", value);
  }

  private static String count(long value) {
    return value == Figure.UNKNOWN ? UNKNOWN : String.format(Locale.ROOT, "%,d", value);
  }

  private static String bytes(long value) {
    if (value == Figure.UNKNOWN) {
      return UNKNOWN;
    }
    String[] units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;
    double shown = value;
    for (; shown >= 1024 && unit < units.length - 1; unit++) {
      shown /= 1024;
    }
    return String.format(Locale.ROOT, unit == 0 ? "%.0f %s" : "%.1f %s", shown, units[unit]);
  }

  private static String path(Row row) {
    return text(StateStoreFilesException.redacted(row.checkpoint()));
  }

  /** Text as HTML, also in an attribute. What no page may contain is replaced. */
  static String text(String raw) {
    StringBuilder escaped = new StringBuilder();
    raw.codePoints().forEach(c -> {
      switch (c) {
        case '&' -> escaped.append("&amp;");
        case '<' -> escaped.append("&lt;");
        case '>' -> escaped.append("&gt;");
        case '"' -> escaped.append("&quot;");
        case '\'' -> escaped.append("&#39;");
        default -> escaped.appendCodePoint(c < ' ' || c >= 0xD800 && c < 0xE000 ? 0xFFFD : c);
      }
    });
    return escaped.toString();
  }
}
