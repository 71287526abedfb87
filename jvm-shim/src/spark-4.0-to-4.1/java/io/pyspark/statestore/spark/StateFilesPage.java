package io.pyspark.statestore.spark;

import jakarta.servlet.http.HttpServletRequest;
import org.apache.spark.ui.UIUtils;
import org.apache.spark.ui.WebUIPage;
import scala.collection.immutable.Seq;
import scala.xml.Node;
import scala.xml.Unparsed;

/** The page of {@link StateFilesTab}, as Spark 4.0 and 4.1 asks for it. */
final class StateFilesPage extends WebUIPage {
  private final StateFilesTab tab;

  StateFilesPage(StateFilesTab tab) {
    super("");
    this.tab = tab;
  }

  @Override
  public Seq<Node> render(HttpServletRequest request) {
    Node content = new Unparsed(tab.html(request.getParameter("checkpoint")));
    return UIUtils.headerSparkPage(
        request, tab.name(), () -> content, tab, UIUtils.headerSparkPage$default$5(),
        UIUtils.headerSparkPage$default$6(), UIUtils.headerSparkPage$default$7());
  }
}
