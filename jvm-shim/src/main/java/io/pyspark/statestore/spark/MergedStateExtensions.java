package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;
import org.apache.spark.sql.SparkSessionExtensions;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** The class for {@code spark.sql.extensions}: adds the check rule of {@link TransformWithStateGuard}. */
public final class MergedStateExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    ShimInfo.checkSpark();
    extensions.injectCheckRule(TransformWithStateGuard.CheckRule::new);
    return BoxedUnit.UNIT;
  }
}
