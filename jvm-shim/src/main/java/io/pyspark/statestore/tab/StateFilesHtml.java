package io.pyspark.statestore.tab;

import io.pyspark.statestore.ShellWord;
import io.pyspark.statestore.StateStoreFilesException;
import io.pyspark.statestore.tab.StateFilesHealth.Finding;
import io.pyspark.statestore.tab.StateFilesHistory.Row;
import io.pyspark.statestore.tab.StateFilesHistory.Sample;
import io.pyspark.statestore.tab.StateFilesHistory.View;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.function.DoubleFunction;
import java.util.function.Function;
import java.util.function.ToDoubleFunction;

/**
 * The page of {@link StateFilesTab}: how each checkpoint is, a line of figures for it, and all of one, with what was
 * there before. It loads nothing but what Spark's pages load, and has no scripts of its own; Spark's sort the table.
 */
final class StateFilesHtml {
  /** A figure with its unit stays on one line. */
  private static final int SHORT = 10;

  /** Colors are Spark's where they have to suit its light and its dark pages; Spark before 4.3 has light ones only. */
  private static final String STYLE =
      """
      <style>
      .sf-scroll{overflow-x:auto}
      #state-files th{vertical-align:bottom}
      #state-files th[data-group]{position:relative;padding-top:1.7em}
      #state-files th[data-group]::before{content:attr(data-group);position:absolute;top:.2em;white-space:nowrap;
      font-weight:400;font-size:.85em;opacity:.75}
      #state-files .sf-first{border-left:3px solid var(--bs-border-color,#bbb)}
      .sf-short{white-space:nowrap}
      .sf-level{font-weight:600;white-space:nowrap}
      .sf-level::before{content:"";display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.4em;
      background:currentColor}
      .sf-good{color:#238b60}.sf-look{color:#b07a10}.sf-act{color:#d43c33}
      .sf-health{padding:.6rem .9rem;margin:.5rem 0 1rem;border:1px solid var(--bs-border-color,#ddd);
      border-left:4px solid currentColor}
      .sf-health p{margin:.2rem 0 0;color:var(--bs-body-color,#333);overflow-wrap:anywhere}
      .sf-one{columns:26rem;column-gap:2rem}
      .sf-one table{table-layout:fixed;width:100%;break-inside:avoid}
      .sf-one caption{caption-side:top;padding:.2rem .3rem;font-weight:600;color:inherit}
      .sf-one th{width:33%;font-weight:600}.sf-one td{width:27%}
      .sf-one td+td{width:40%;opacity:.75}.sf-one td,.sf-one th{overflow-wrap:anywhere}
      .sf-one tr:target>*{background:#f2c14e55}
      .sf-charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));gap:1rem 2rem}
      .sf-chart{margin:0;min-width:0}.sf-chart figcaption{font-weight:600}
      .sf-chart svg{display:block;width:100%;height:auto}
      .sf-chart text{fill:currentColor;font-size:14px;opacity:.8}
      .sf-chart polyline{fill:none;stroke-width:2}
      .sf-grid{stroke:#8886;stroke-width:1}
      .sf-disk{stroke:#d1603d;background:#d1603d}.sf-live{stroke:#2f9a77;background:#2f9a77}
      .sf-files{stroke:#8c6bc8}.sf-flush{stroke:#4c86c6}
      .sf-key{display:flex;flex-wrap:wrap;gap:0 1rem;font-size:.9em}
      .sf-key i{display:inline-block;width:.75em;height:.75em;margin-right:.35em}
      .sf-path{overflow-wrap:anywhere}
      @media (max-width:40rem){.sf-chart text{font-size:17px}}
      </style>\
      """;

  private final View view;
  private final boolean hasQueries;

  /**
   * @param hasQueries whether Spark has pages of streaming queries, to which a checkpoint's page may lead
   */
  StateFilesHtml(View view, boolean hasQueries) {
    this.view = view;
    this.hasQueries = hasQueries;
  }

  /** What figures have to do with each other. */
  private enum Group {
    SIZE("Size", "size"),
    WRITING("Writing", "writing"),
    READING("Reading", "reading"),
    MAINTENANCE("Maintenance", "maintenance"),
    PROCESSES("Processes", "processes");

    private final String words;
    private final String id;

    Group(String words, String id) {
      this.words = words;
      this.id = id;
    }
  }

  /**
   * A column of the overview, and a line of a checkpoint's own tables.
   *
   * @param isOverview whether it is in the overview, too
   * @param tip what it means
   * @param key what the table is sorted by: the exact figure
   * @param shown what people see
   */
  private record Column(
      Group group,
      boolean isOverview,
      String name,
      String tip,
      ToDoubleFunction<Row> key,
      Function<Row, String> shown) {
    private String id() {
      return "figure-" + name.toLowerCase(Locale.ROOT).replace(' ', '-');
    }
  }

  private List<Column> columns() {
    return List.of(
        figure(Group.SIZE, true, "Logical files", "live files as Spark names them", Figure.LIVE_FILES, Shown::count),
        figure(Group.SIZE, true, "Live bytes", "of these files", Figure.LIVE_BYTES, Shown::bytes),
        figure(Group.SIZE, true, "Merged files", "in _merged/", Figure.FILES, Shown::count),
        figure(Group.SIZE, true, "Bytes on disk", "of all merged files", Figure.PHYSICAL_BYTES, Shown::bytes),
        new Column(
            Group.SIZE,
            true,
            Shown.AMPLIFICATION,
            "bytes on disk for each live one",
            StateFilesHtml::amplification,
            row -> Shown.number(amplification(row), "")),
        figure(Group.WRITING, true, "Commits", "by all processes", Figure.COMMITS, Shown::count),
        figure(Group.WRITING, true, "Groups", "flushes that made them durable", Figure.GROUPS, Shown::count),
        new Column(
            Group.WRITING,
            false,
            "Commits per group",
            "how many commits share a flush",
            row -> ratio(row.of(Figure.COMMITS), row.of(Figure.GROUPS)),
            row -> Shown.number(ratio(row.of(Figure.COMMITS), row.of(Figure.GROUPS)), "")),
        figure(Group.WRITING, false, "Bytes written", "in groups", Figure.WRITTEN_BYTES, Shown::bytes),
        new Column(
            Group.WRITING,
            true,
            Shown.FLUSH,
            "writing and flushing a group",
            row -> millis(row, Figure.WRITE_NANOS, Figure.GROUPS),
            row -> Shown.number(millis(row, Figure.WRITE_NANOS, Figure.GROUPS), " ms")),
        new Column(
            Group.WRITING,
            true,
            "Mean commit",
            "from the moment a commit is queued until it is durable",
            row -> millis(row, Figure.WAIT_NANOS, Figure.COMMITS),
            row -> Shown.number(millis(row, Figure.WAIT_NANOS, Figure.COMMITS), " ms")),
        figure(
            Group.WRITING, true, Shown.FAILED_GROUPS, "Spark retries their tasks", Figure.FAILED_GROUPS, Shown::count),
        figure(
            Group.READING,
            false,
            "Keys asked ahead",
            "of rows that an operator was going to work on",
            Figure.LOOK_AHEAD_KEYS,
            Shown::count),
        figure(
            Group.READING,
            false,
            "Waits saved",
            "blocks that were fetched before a read would have waited for them",
            Figure.LOOK_AHEAD_FETCHED_BLOCKS,
            Shown::count),
        figure(
            Group.READING,
            false,
            "Rows moved to the disk",
            "of heap stores, because executors had no room for them",
            Figure.HEAP_SPILL_WRITTEN_BYTES,
            Shown::bytes),
        figure(
            Group.READING,
            false,
            Shown.SPILL_READS,
            "how often rows of heap stores were read on the disk",
            Figure.HEAP_SPILL_READS,
            Shown::count),
        new Column(
            Group.MAINTENANCE,
            true,
            Shown.MAINTENANCE,
            "the last cleaning pass",
            row -> row.of(Figure.PASS_ENDED_MS),
            this::maintenance),
        figure(
            Group.MAINTENANCE,
            false,
            "Bytes moved",
            "live bytes out of files that are mostly dead",
            Figure.RELOCATED_BYTES,
            Shown::bytes),
        figure(
            Group.MAINTENANCE,
            false,
            "Files deleted",
            "merged files that nothing lived in any more",
            Figure.UNLINKED_FILES,
            Shown::count),
        figure(
            Group.MAINTENANCE, false, Shown.FAILED_DELETES, "tried again later", Figure.FAILED_DELETES, Shown::count),
        new Column(
            Group.PROCESSES,
            true,
            "Index service",
            "questions of executors to the driver",
            row -> row.of(Figure.INDEX_QUESTIONS),
            this::service),
        new Column(
            Group.PROCESSES,
            true,
            "Last change",
            "when a process told something new",
            Row::changedMs,
            row -> ago(row.changedMs())));
  }

  private static Column figure(
      Group group, boolean isOverview, String name, String tip, Figure figure, Function<Long, String> shown) {
    return new Column(group, isOverview, name, tip, row -> row.of(figure), row -> shown.apply(row.of(figure)));
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
    StringBuilder html = new StringBuilder(STYLE);
    html.append(
            "<p>Checkpoints with merged state that this application has worked on. The driver and the executors tell")
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
    html.append("<div class=\"sf-scroll\"><table id=\"state-files\"")
        .append(" class=\"table table-bordered table-sm table-striped sortable\"><thead><tr><th>Checkpoint</th>")
        .append("<th title=\"by what has failed lately, and by what is kept\">Health</th>");
    List<Column> columns = columns().stream().filter(Column::isOverview).toList();
    Group before = null;
    for (Column column : columns) {
      // Spark's script sorts no table with two lines of headings, so the name of a group is in the style of its first.
      String group = column.group() == before ? "" : " data-group=\"" + Shown.text(column.group().words) + '"';
      html.append("<th")
          .append(attributes(column, before))
          .append(group)
          .append(" title=\"")
          .append(Shown.text(column.tip()))
          .append("\">")
          .append(Shown.text(column.name()))
          .append("</th>");
      before = column.group();
    }
    html.append("</tr></thead><tbody>");
    for (Row row : view.rows()) {
      List<Finding> found = StateFilesHealth.of(row, view.atMs());
      String link = "?checkpoint=" + row.number() + "#checkpoint";
      html.append("<tr><td class=\"sf-path\"><a href=\"")
          .append(link)
          .append("\">")
          .append(path(row))
          .append("</a></td><td sorttable_customkey=\"")
          .append(StateFilesHealth.level(found).ordinal())
          .append("\">");
      level(html, found);
      html.append("</td>");
      before = null;
      for (Column column : columns) {
        cell(html, column, row, attributes(column, before));
        before = column.group();
      }
      html.append("</tr>");
    }
    html.append("</tbody></table></div>");
    if (view.more()) {
      html.append("<p>These are the ")
          .append(view.rows().size())
          .append(" that changed last; others are not kept.</p>");
    }
  }

  private static String attributes(Column column, Group before) {
    return column.group() == before ? "" : " class=\"sf-first\"";
  }

  private static void level(StringBuilder html, List<Finding> found) {
    StateFilesHealth.Level level = StateFilesHealth.level(found);
    html.append("<span class=\"sf-level sf-")
        .append(level.name().toLowerCase(Locale.ROOT))
        .append("\">")
        .append(Shown.text(found.isEmpty() ? level.words() : found.get(0).title()))
        .append(found.size() > 1 ? " +" + (found.size() - 1) : "")
        .append("</span>");
  }

  private static void cell(StringBuilder html, Column column, Row row, String attributes) {
    String shown = column.shown().apply(row);
    html.append("<td")
        .append(attributes)
        .append(" sorttable_customkey=\"")
        .append(Shown.exact(column.key().applyAsDouble(row)))
        .append("\">");
    if (shown.length() <= SHORT) {
      html.append("<span class=\"sf-short\">").append(Shown.text(shown)).append("</span></td>");
    } else {
      html.append(Shown.text(shown)).append("</td>");
    }
  }

  private void detail(StringBuilder html, Row row) {
    html.append("<h4 id=\"checkpoint\" class=\"sf-path\">").append(path(row)).append("</h4>");
    links(html, row);
    health(html, row);
    Map<Group, List<Column>> groups = new LinkedHashMap<>();
    columns().forEach(column -> groups.computeIfAbsent(column.group(), group -> new ArrayList<>()).add(column));
    html.append("<div class=\"sf-one\">");
    groups.forEach(
        (group, columns) -> {
          html.append("<table id=\"state-files-of-one-")
              .append(group.id)
              .append("\" class=\"table table-sm\"><caption>")
              .append(Shown.text(group.words))
              .append("</caption><tbody>");
          for (Column column : columns) {
            html.append("<tr id=\"")
                .append(column.id())
                .append("\"><th scope=\"row\">")
                .append(Shown.text(column.name()))
                .append("</th>");
            cell(html, column, row, "");
            html.append("<td>").append(Shown.text(column.tip())).append("</td></tr>");
          }
          html.append("</tbody></table>");
        });
    html.append("</div><div class=\"sf-charts\">");
    List<Sample> samples = row.samples();
    DoubleFunction<String> bytes = value -> Shown.bytes((long) value).replace(".0 ", " ");
    chart(
        html,
        samples,
        new StateFilesChart(
            "Bytes",
            bytes,
            2,
            List.of(
                new StateFilesChart.Line("disk", "on disk", sample -> known(sample.physicalBytes())),
                new StateFilesChart.Line("live", "live", sample -> known(sample.liveBytes())))));
    chart(
        html,
        samples,
        new StateFilesChart(
            "Merged files",
            value -> Shown.count((long) value),
            10,
            List.of(new StateFilesChart.Line("files", "merged files", sample -> known(sample.files())))));
    chart(
        html,
        flushes(samples),
        new StateFilesChart(
            "Mean flush",
            Shown::millis,
            10,
            List.of(new StateFilesChart.Line("flush", "mean flush", sample -> sample.writeNanos() / 1e6))));
    html.append("</div>");
  }

  private void chart(StringBuilder html, List<Sample> samples, StateFilesChart chart) {
    chart.draw(html, samples, view.atMs(), this::ago);
  }

  /** Where to go on from a checkpoint's page. */
  private void links(StringBuilder html, Row row) {
    List<String> links = new ArrayList<>();
    if (view.rows().size() > 1) {
      links.add("<a href=\"?\">all checkpoints</a>");
    }
    if (hasQueries && row.of(Figure.RUN_ID_FIRST) != Figure.UNKNOWN) {
      UUID run = new UUID(row.of(Figure.RUN_ID_FIRST), row.of(Figure.RUN_ID_LAST));
      links.add("<a href=\"../StreamingQuery/statistics/?id=" + run + "\">the query's last run</a>");
    }
    String location = row.checkpoint();
    // What is hidden, or is no text, can be put in no command.
    if (path(row).equals(Shown.text(location)) && location.chars().noneMatch(c -> c < ' ')) {
      links.add(
          "what to do, in a page: <code class=\"sf-path\">pyspark-statestore report "
              + Shown.text(ShellWord.of(location))
              + " -o report.html</code>");
    }
    html.append("<p>").append(String.join(" · ", links)).append("</p>");
  }

  private void health(StringBuilder html, Row row) {
    List<Finding> found = StateFilesHealth.of(row, view.atMs());
    if (found.isEmpty()) {
      found =
          List.of(
              new Finding(
                  StateFilesHealth.Level.GOOD,
                  StateFilesHealth.Level.GOOD.words(),
                  "Nothing has failed in the last "
                      + Shown.span(StateFilesHealth.LATELY_MS)
                      + ", and maintenance keeps up.",
                  null));
    }
    for (Finding each : found) {
      html.append("<div class=\"sf-health sf-")
          .append(each.level().name().toLowerCase(Locale.ROOT))
          .append("\"><span class=\"sf-level\">")
          .append(Shown.text(each.title()))
          .append("</span><p>")
          .append(Shown.text(each.why()));
      columns().stream()
          .filter(column -> column.name().equals(each.figure()))
          .forEach(
              column ->
                  html.append(" <a href=\"#")
                      .append(column.id())
                      .append("\">")
                      .append(Shown.text(column.name()))
                      .append("</a>"));
      html.append("</p></div>");
    }
  }

  /** The mean flush between two samples, in nanoseconds, as samples. */
  private static List<Sample> flushes(List<Sample> samples) {
    List<Sample> means = new ArrayList<>();
    for (int i = 1; i < samples.size(); i++) {
      Sample from = samples.get(i - 1);
      Sample to = samples.get(i);
      long groups = to.groups() - from.groups();
      if (groups > 0) {
        means.add(new Sample(to.atMs(), 0, 0, 0, groups, (to.writeNanos() - from.writeNanos()) / groups));
      }
    }
    return means;
  }

  // ---- figures as text

  private String service(Row row) {
    if (row.of(Figure.SERVED) != 1) {
      return row.of(Figure.SERVED) == 0 ? "off" : Shown.UNKNOWN;
    }
    long questions = row.of(Figure.INDEX_QUESTIONS);
    String last = ago(row.grewMs(Figure.INDEX_QUESTIONS));
    return questions == 0 ? "on" : Shown.count(questions) + " questions, the last " + last;
  }

  private String maintenance(Row row) {
    long endedMs = row.of(Figure.PASS_ENDED_MS);
    if (endedMs == Figure.UNKNOWN) {
      return "none yet";
    }
    String took = ago(endedMs) + ", took " + Shown.count(row.of(Figure.PASS_TOOK_MS)) + " ms";
    return row.of(Figure.PASS_STOPPED) == 1 ? took + ", stopped: see the log" : took;
  }

  private String ago(long atMs) {
    return Shown.span(view.atMs() - atMs) + " ago";
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

  private static String path(Row row) {
    return Shown.text(StateStoreFilesException.redacted(row.checkpoint()));
  }
}
