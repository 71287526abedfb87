package io.pyspark.statestore.spark;

import io.pyspark.statestore.ShimInfo;
import org.apache.spark.sql.SparkSessionExtensions;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** The class for {@code spark.sql.extensions}: adds {@link TransformWithStateGuard}, and {@link LookAheadExtension}. */
public final class MergedStateExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    ShimInfo.checkSpark();
    extensions.injectCheckRule(TransformWithStateGuard.CheckRule::new);
    LookAheadExtension.inject(extensions);
    return BoxedUnit.UNIT;
  }
}
