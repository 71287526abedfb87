package io.pyspark.statestore.spark;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.xbean.asm9.ClassWriter;
import org.apache.xbean.asm9.MethodVisitor;
import org.apache.xbean.asm9.Opcodes;
import org.apache.xbean.asm9.Type;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A store of Spark's that passes everything on, and has more metrics.
 *
 * <p>Spark's RocksDB provider makes its stores where nothing can be added to their metrics. The methods of a store
 * differ between all minor versions, so a subclass that passes them on is made when the first store is. A {@link
 * java.lang.reflect.Proxy} would wrap the checked exceptions that Spark throws and its traits do not declare.
 */
abstract class MeteredStore {
  private static final Logger LOG = LoggerFactory.getLogger(MeteredStore.class);

  /** Makes one of a store and of what adds to its metrics; null where this Spark does not allow it. */
  private static final MethodHandle MAKER = maker();

  /** What everything else is passed on to. */
  final StateStore store;

  private final UnaryOperator<StateStoreMetrics> more;

  MeteredStore(StateStore store, UnaryOperator<StateStoreMetrics> more) {
    this.store = store;
    this.more = more;
  }

  /** The metrics of the store, and what was added to them. */
  public final StateStoreMetrics metrics() {
    return more.apply(store.metrics());
  }

  /** A store with more metrics; the store itself where there cannot be one, or where it has them already. */
  static StateStore of(StateStore store, UnaryOperator<StateStoreMetrics> more) {
    if (MAKER == null || store instanceof MeteredStore) {
      return store;
    }
    try {
      return (StateStore) MAKER.invoke(store, more);
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  private static MethodHandle maker() {
    try {
      MethodType arguments = MethodType.methodType(void.class, StateStore.class, UnaryOperator.class);
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      return lookup.findConstructor(lookup.defineClass(subclass(arguments)), arguments);
    } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
      LOG.warn(
          "The progress of queries does not say what was done to merged files. What to do: report it with this"
              + " stack trace",
          e);
      return null;
    }
  }

  private static byte[] subclass(MethodType arguments) {
    String base = Type.getInternalName(MeteredStore.class);
    String sparks = Type.getInternalName(StateStore.class);
    ClassWriter made = new ClassWriter(ClassWriter.COMPUTE_MAXS);
    made.visit(Opcodes.V1_8, Opcodes.ACC_FINAL, base + "OfSpark", null, base, new String[] {sparks});
    MethodVisitor constructor = made.visitMethod(0, "<init>", arguments.toMethodDescriptorString(), null, null);
    for (int each = 0; each < 3; each++) {
      constructor.visitVarInsn(Opcodes.ALOAD, each);
    }
    constructor.visitMethodInsn(Opcodes.INVOKESPECIAL, base, "<init>", arguments.toMethodDescriptorString(), false);
    constructor.visitInsn(Opcodes.RETURN);
    constructor.visitMaxs(0, 0);
    for (Method method : StateStore.class.getMethods()) {
      if (!Modifier.isStatic(method.getModifiers()) && !method.getName().equals("metrics")) {
        passOn(made, method, base, sparks);
      }
    }
    return made.toByteArray();
  }

  private static void passOn(ClassWriter made, Method method, String base, String sparks) {
    String descriptor = Type.getMethodDescriptor(method);
    MethodVisitor code = made.visitMethod(Opcodes.ACC_PUBLIC, method.getName(), descriptor, null, null);
    code.visitVarInsn(Opcodes.ALOAD, 0);
    code.visitFieldInsn(Opcodes.GETFIELD, base, "store", "L" + sparks + ";");
    int local = 1;
    for (Type argument : Type.getArgumentTypes(method)) {
      code.visitVarInsn(argument.getOpcode(Opcodes.ILOAD), local);
      local += argument.getSize();
    }
    code.visitMethodInsn(Opcodes.INVOKEINTERFACE, sparks, method.getName(), descriptor, true);
    code.visitInsn(Type.getReturnType(method).getOpcode(Opcodes.IRETURN));
    code.visitMaxs(0, 0);
  }
}
