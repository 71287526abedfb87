package io.pyspark.statestore.tab;

import java.util.function.UnaryOperator;
import javax.servlet.http.HttpServletRequest;
import org.apache.spark.ui.SparkUITab;
import org.apache.spark.ui.UIUtils;
import org.apache.spark.ui.WebUIPage;
import scala.collection.Seq;
import scala.util.Properties;
import scala.xml.Node;
import scala.xml.Unparsed;

/** The page of {@link StateFilesTab}, as Spark 3.5 asks for it. */
final class StateFilesPage extends WebUIPage {
  private final SparkUITab tab;
  private final UnaryOperator<String> html;

  /**
   * @param html makes what is below the tab, of the number of a checkpoint as the request has it
   */
  StateFilesPage(SparkUITab tab, UnaryOperator<String> html) {
    super("");
    this.tab = tab;
    this.html = html;
    String scala = Properties.versionNumberString();
    if (!scala.startsWith("2.12.")) {
      // Spark would call a method with another class of sequences, which is not here.
      throw new IllegalStateException("Spark 3.5 with Scala " + scala + " takes pages of another kind");
    }
  }

  @Override
  public Seq<Node> render(HttpServletRequest request) {
    Node content = new Unparsed(html.apply(request.getParameter("checkpoint")));
    return UIUtils.headerSparkPage(
        request,
        tab.name(),
        () -> content,
        tab,
        UIUtils.headerSparkPage$default$5(),
        UIUtils.headerSparkPage$default$6(),
        UIUtils.headerSparkPage$default$7());
  }
}
