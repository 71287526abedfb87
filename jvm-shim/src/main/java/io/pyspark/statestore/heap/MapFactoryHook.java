package io.pyspark.statestore.heap;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;

/**
 * Whether Spark's heap store can be given other maps. It makes them in a method that is public in the bytecode only, so
 * another Spark may not have it, or want more of a map.
 */
public final class MapFactoryHook {
  static final String METHOD =
      "org$apache$spark$sql$execution$streaming$state$HDFSBackedStateStoreProvider$$createHDFSBackedStateStoreMap";

  private MapFactoryHook() {}

  /**
   * Looks for what is missing.
   *
   * @param provider Spark's class
   * @param map Spark's interface of a map
   * @param ours what implements it
   * @return null for nothing
   */
  public static String whatIsMissing(Class<?> provider, Class<?> map, Class<?> ours) {
    try {
      Method factory = provider.getDeclaredMethod(METHOD);
      int modifiers = factory.getModifiers();
      if (!Modifier.isPublic(modifiers) || Modifier.isFinal(modifiers) || factory.getReturnType() != map) {
        return "a method " + METHOD + " that can be overridden";
      }
    } catch (NoSuchMethodException e) {
      return "the method " + METHOD;
    }
    for (Method wanted : map.getMethods()) {
      if (Modifier.isAbstract(wanted.getModifiers()) && !implementsIt(ours, wanted)) {
        return "no need of a map to have " + wanted;
      }
    }
    return null;
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
