package io.pyspark.statestore.heap;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.function.Predicate;

/**
 * Checks whether Spark's heap store can be given other maps. Spark makes them in a method that is private in the source
 * and public in the bytecode, so another Spark may lack that method, or call methods that our map does not have.
 */
public final class MapFactoryHook {
  static final String METHOD =
      "org$apache$spark$sql$execution$streaming$state$HDFSBackedStateStoreProvider$$createHDFSBackedStateStoreMap";

  private MapFactoryHook() {}

  /**
   * Says what is missing.
   *
   * @param provider Spark's class of a heap store
   * @param map Spark's interface of a map
   * @param ours our implementation of it
   * @return null if nothing is missing
   */
  public static String whatIsMissing(Class<?> provider, Class<?> map, Class<?> ours) {
    String missing = whatIsMissing(provider, returned -> returned == map);
    if (missing != null) {
      return missing;
    }
    for (Method wanted : map.getMethods()) {
      if (Modifier.isAbstract(wanted.getModifiers()) && !implementsIt(ours, wanted)) {
        return "a map interface without " + wanted;
      }
    }
    return null;
  }

  /** Says what is missing in Spark's class of a heap store; null if nothing is. */
  public static String whatIsMissing(Class<?> provider) {
    return whatIsMissing(provider, returned -> returned.getSimpleName().equals("HDFSBackedStateStoreMap"));
  }

  private static String whatIsMissing(Class<?> provider, Predicate<Class<?>> isMap) {
    try {
      Method factory = provider.getDeclaredMethod(METHOD);
      int modifiers = factory.getModifiers();
      return Modifier.isPublic(modifiers) && !Modifier.isFinal(modifiers) && isMap.test(factory.getReturnType())
          ? null
          : "a method " + METHOD + " that can be overridden";
    } catch (NoSuchMethodException e) {
      return "the method " + METHOD;
    }
  }

  private static boolean implementsIt(Class<?> ours, Method wanted) {
    try {
      Method found = ours.getMethod(wanted.getName(), wanted.getParameterTypes());
      boolean isConcrete = !Modifier.isAbstract(found.getModifiers());
      return isConcrete && wanted.getReturnType().isAssignableFrom(found.getReturnType());
    } catch (NoSuchMethodException e) {
      return false;
    }
  }
}
