package io.pyspark.statestore.testing;

import java.lang.management.ManagementFactory;
import java.util.StringJoiner;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/** The metrics of this process that a JMX client sees. */
public final class JmxMetrics {
  private JmxMetrics() {}

  /** A line {@code <name>\t<type>\t<attribute>\t<value>} for each attribute of Spark's metrics that is a number. */
  public static String numbers() throws JMException {
    MBeanServer server = ManagementFactory.getPlatformMBeanServer();
    StringJoiner lines = new StringJoiner("\n");
    for (ObjectName name : server.queryNames(new ObjectName("metrics:*"), null)) {
      for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
        if (server.getAttribute(name, attribute.getName()) instanceof Number number) {
          lines.add(
              String.join(
                  "\t",
                  name.getKeyProperty("name"),
                  name.getKeyProperty("type"),
                  attribute.getName(),
                  number.toString()));
        }
      }
    }
    return lines.toString();
  }
}
