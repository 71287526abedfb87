package io.pyspark.statestore.spark;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/** Calls every method that a state store of this Spark has on one with more metrics. */
public final class PassedOn {
  private record Call(String method, List<Object> arguments) {}

  private PassedOn() {}

  /** The calls that did not come through to the store below as they were made, or whose result did not come back. */
  public static List<String> notPassedOn() throws ReflectiveOperationException {
    List<Call> came = new ArrayList<>();
    StateStore below =
        (StateStore)
            Proxy.newProxyInstance(
                StateStore.class.getClassLoader(),
                new Class<?>[] {StateStore.class},
                (proxy, method, arguments) -> {
                  came.add(new Call(method.getName(), arguments == null ? List.of() : Arrays.asList(arguments)));
                  return value(method.getReturnType());
                });
    StateStore metered = MeteredStore.of(below, metrics -> metrics);
    if (metered == below) {
      return List.of("no store with more metrics can be made");
    }
    List<String> wrong = new ArrayList<>();
    for (Method method : StateStore.class.getMethods()) {
      if (!Modifier.isStatic(method.getModifiers())) {
        Object[] arguments = Arrays.stream(method.getParameterTypes()).map(PassedOn::value).toArray();
        came.clear();
        Object result = method.invoke(metered, arguments);
        boolean same = came.equals(List.of(new Call(method.getName(), Arrays.asList(arguments))));
        if (!same || method.getReturnType() != void.class && !Objects.equals(value(method.getReturnType()), result)) {
          wrong.add(method + " " + came);
        }
      }
    }
    return wrong;
  }

  private static Object value(Class<?> type) {
    if (type == boolean.class) {
      return true;
    }
    if (type == long.class) {
      return 7L;
    }
    return type == String.class ? "text" : null;
  }
}
