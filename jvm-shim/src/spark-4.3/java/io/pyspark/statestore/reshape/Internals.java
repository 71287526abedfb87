package io.pyspark.statestore.reshape;

import io.pyspark.statestore.Unchecked;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/** What Spark's classes keep to themselves: a jar is for one minor version of Spark, so it is known what they have. */
final class Internals {
  private final Object object;

  Internals(Object object) {
    this.object = object;
  }

  /**
   * Calls the only method of that name and number of arguments.
   *
   * @throws NoSuchMethodException if there is none, so this is another Spark than the jar is for
   */
  Object call(String name, Object... arguments) throws ReflectiveOperationException {
    Method method = method(name, arguments.length);
    method.setAccessible(true);
    try {
      return method.invoke(object, arguments);
    } catch (InvocationTargetException e) {
      if (e.getCause() instanceof Exception) {
        throw Unchecked.raise((Exception) e.getCause());
      }
      throw e;
    }
  }

  private Method method(String name, int arguments) throws NoSuchMethodException {
    for (Class<?> each = object.getClass(); each != null; each = each.getSuperclass()) {
      for (Method method : each.getDeclaredMethods()) {
        if (method.getName().equals(name) && method.getParameterCount() == arguments) {
          return method;
        }
      }
    }
    throw new NoSuchMethodException(object.getClass().getName() + "." + name);
  }

  /** Returns the value of a field. */
  Object get(String name) throws ReflectiveOperationException {
    return field(name).get(object);
  }

  /** Replaces the value of a field. */
  void set(String name, Object value) throws ReflectiveOperationException {
    field(name).set(object, value);
  }

  private Field field(String name) throws ReflectiveOperationException {
    for (Class<?> each = object.getClass(); each != null; each = each.getSuperclass()) {
      for (Field field : each.getDeclaredFields()) {
        if (field.getName().equals(name)) {
          field.setAccessible(true);
          return field;
        }
      }
    }
    throw new NoSuchFieldException(object.getClass().getName() + "." + name);
  }
}
