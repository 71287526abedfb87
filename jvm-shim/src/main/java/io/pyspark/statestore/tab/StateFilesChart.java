package io.pyspark.statestore.tab;

import io.pyspark.statestore.tab.StateFilesHistory.Sample;
import java.util.List;
import java.util.Locale;
import java.util.function.DoubleFunction;
import java.util.function.LongFunction;
import java.util.function.ToDoubleFunction;

/** A chart of {@link StateFilesHtml}: lines over time, with a scale on both sides. It scales with its place. */
final class StateFilesChart {
  private static final int WIDTH = 560;
  private static final int HEIGHT = 150;
  private static final int LEFT = 74;
  private static final int RIGHT = 552;
  private static final int TOP = 12;
  private static final int BOTTOM = 124;

  /**
   * A line.
   *
   * @param kind its class in the style sheet, which gives it a colour
   */
  record Line(String kind, String label, ToDoubleFunction<Sample> value) {}

  private final String title;
  private final DoubleFunction<String> unit;
  private final double step;
  private final List<Line> lines;

  /**
   * @param unit how a value looks
   * @param step the base of round numbers: 2 for bytes, 10 for what people count
   */
  StateFilesChart(String title, DoubleFunction<String> unit, int step, List<Line> lines) {
    this.title = title;
    this.unit = unit;
    this.step = step;
    this.lines = lines;
  }

  /**
   * Draws samples until now: what has not changed is not sampled, so the last one holds.
   *
   * @param ago how long ago a time was
   */
  void draw(StringBuilder html, List<Sample> samples, long nowMs, LongFunction<String> ago) {
    html.append("<figure class=\"sf-chart\"><figcaption>").append(Shown.text(title)).append("</figcaption>");
    if (samples.isEmpty()) {
      html.append("<p>Nothing yet.</p></figure>");
      return;
    }
    Sample last = samples.get(samples.size() - 1);
    StringBuilder said = new StringBuilder(title);
    if (lines.size() > 1) {
      html.append("<div class=\"sf-key\">");
    }
    for (Line line : lines) {
      String now = line.label() + ' ' + unit.apply(line.value().applyAsDouble(last));
      said.append(", ").append(now);
      if (lines.size() > 1) {
        html.append("<span><i class=\"sf-")
            .append(line.kind())
            .append("\"></i>")
            .append(Shown.text(now))
            .append("</span>");
      }
    }
    if (lines.size() > 1) {
      html.append("</div>");
    }
    double highest = 0;
    for (Sample sample : samples) {
      for (Line line : lines) {
        highest = Math.max(highest, line.value().applyAsDouble(sample));
      }
    }
    double top = roundUp(highest);
    html.append("<svg role=\"img\" aria-label=\"")
        .append(Shown.text(said.toString()))
        .append("\" viewBox=\"0 0 ")
        .append(WIDTH)
        .append(' ')
        .append(HEIGHT)
        .append("\">");
    for (double part : new double[] {0, 0.5, 1}) {
      double y = BOTTOM - part * (BOTTOM - TOP);
      html.append(
          String.format(
              Locale.ROOT,
              "<path class=\"sf-grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
              LEFT,
              y,
              RIGHT,
              LEFT - 6,
              y + 4,
              Shown.text(unit.apply(top * part))));
    }
    long firstMs = samples.get(0).atMs();
    html.append("<text x=\"")
        .append(LEFT)
        .append("\" y=\"")
        .append(BOTTOM + 19)
        .append("\">")
        .append(Shown.text(ago.apply(firstMs)))
        .append("</text><text x=\"")
        .append(RIGHT)
        .append("\" y=\"")
        .append(BOTTOM + 19)
        .append("\" text-anchor=\"end\">now</text>");
    for (Line line : lines) {
      polyline(html, samples, line, top, nowMs);
    }
    html.append("</svg></figure>");
  }

  /** Steps from sample to sample. */
  private void polyline(StringBuilder html, List<Sample> samples, Line line, double top, long nowMs) {
    long firstMs = samples.get(0).atMs();
    double span = Math.max(1, nowMs - firstMs);
    html.append("<polyline class=\"sf-").append(line.kind()).append("\" points=\"");
    double before = line.value().applyAsDouble(samples.get(0));
    for (Sample sample : samples) {
      double x = LEFT + (RIGHT - LEFT) * (sample.atMs() - firstMs) / span;
      point(html, x, before / top);
      before = line.value().applyAsDouble(sample);
      point(html, x, before / top);
    }
    point(html, RIGHT, before / top);
    html.append("\"/>");
  }

  private static void point(StringBuilder html, double x, double part) {
    html.append(String.format(Locale.ROOT, "%.1f,%.1f ", x, BOTTOM - part * (BOTTOM - TOP)));
  }

  /** The top of a scale: a round number that is not lower, whose half is round, too. */
  private double roundUp(double value) {
    if (value <= 2) {
      return 2;
    }
    double unit = Math.pow(step, Math.floor(Math.log(value) / Math.log(step)));
    for (double part : step == 2 ? new double[] {1, 1.5, 2} : new double[] {1, 2, 3, 4, 6, 8, 10}) {
      if (unit * part >= value) {
        return unit * part;
      }
    }
    return unit * step * step;
  }
}
