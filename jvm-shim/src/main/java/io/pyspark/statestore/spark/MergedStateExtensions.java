package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;
import io.pyspark.statestore.balance.RebalanceRule;
import io.pyspark.statestore.sink.ListHolesRule;
import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.execution.ColumnarRule;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * The class for {@code spark.sql.extensions}: adds {@link PlanChecks}, and what looks at the plan of each batch: {@link
 * LookAheadExtension}, {@link RebalanceRule} and {@link ListHolesRule}.
 */
public final class MergedStateExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  private static final String PROVIDER = "spark.sql.streaming.stateStore.providerClass";

  private static final Set<SparkSessionExtensions> WITH_PLAN_RULES =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    ShimInfo.checkSpark();
    extensions.injectCheckRule(PlanChecks.CheckRule::new);
    extensions.injectCheckRule(session -> new ListHolesRule.Check(() -> SessionInternals.hadoopConf(session)));
    injectPlanRules(extensions);
    return BoxedUnit.UNIT;
  }

  /**
   * Also in a session that runs already: Spark makes a session for each query, with the same extensions.
   *
   * @return false where they are there already
   */
  static boolean injectPlanRules(SparkSessionExtensions extensions) {
    if (!WITH_PLAN_RULES.add(extensions)) {
      return false;
    }
    LookAheadExtension.inject(extensions);
    extensions.injectColumnar(
        new AbstractFunction1<SparkSession, ColumnarRule>() {
          @Override
          public ColumnarRule apply(SparkSession session) {
            return new RebalanceRule(
                session,
                () -> ProviderConf.options(SessionInternals.hadoopConf(session)).rebalance(),
                () -> session.conf().get(PROVIDER, "").startsWith(MergedStateExtensions.class.getPackageName()));
          }
        });
    extensions.injectColumnar(
        new AbstractFunction1<SparkSession, ColumnarRule>() {
          @Override
          public ColumnarRule apply(SparkSession session) {
            return new ListHolesRule(session, () -> SessionInternals.hadoopConf(session));
          }
        });
    return true;
  }
}
