package io.pyspark.statestore.write;

import java.nio.file.Path;
import java.util.Map;
import java.util.function.IntSupplier;
import java.util.function.Supplier;

/**
 * The process that a log works in.
 *
 * @param headerFields what the headers of new files say of it
 * @param localDirectory makes a local directory for what does not fit into memory
 * @param taskSlots how many tasks run at the same time
 * @param maintenanceMs Spark's maintenance interval
 * @param taskEnd of the task for which the current thread works
 */
public record ProcessFacts(
    Supplier<Map<String, String>> headerFields,
    Supplier<Path> localDirectory,
    IntSupplier taskSlots,
    long maintenanceMs,
    TaskEnd taskEnd) {}
