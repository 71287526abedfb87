package io.pyspark.statestore.spark;

import javax.servlet.http.HttpServletRequest;
import org.apache.spark.ui.UIUtils;
import org.apache.spark.ui.WebUIPage;
import scala.collection.Seq;
import scala.util.Properties;
import scala.xml.Node;
import scala.xml.Unparsed;

/** The page of {@link StateFilesTab}, as Spark 3.5 asks for it. */
final class StateFilesPage extends WebUIPage {
  private final StateFilesTab tab;

  StateFilesPage(StateFilesTab tab) {
    super("");
    this.tab = tab;
    String scala = Properties.versionNumberString();
    if (!scala.startsWith("2.12.")) {
      // Spark would call a method with another class of sequences, which is not here.
      throw new IllegalStateException("Spark 3.5 with Scala " + scala + " takes pages of another kind");
    }
  }

  @Override
  public Seq<Node> render(HttpServletRequest request) {
    Node content = new Unparsed(tab.html(request.getParameter("checkpoint")));
    return UIUtils.headerSparkPage(
        request, tab.name(), () -> content, tab, UIUtils.headerSparkPage$default$5(),
        UIUtils.headerSparkPage$default$6(), UIUtils.headerSparkPage$default$7());
  }
}
