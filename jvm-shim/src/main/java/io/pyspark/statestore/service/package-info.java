/**
 * The driver answers its executors what lives where, so that they need not read each other's files.
 *
 * <p>May import: {@code files}, {@code index}, {@code metrics}, {@code learn}, {@code write}, {@code clean}.
 *
 * <ol>
 *   <li>an executor's {@link io.pyspark.statestore.service.ServiceSource} is its index source, and reports its groups
 *   <li>{@link io.pyspark.statestore.service.ServiceMessages} are the questions and answers, as bytes
 *   <li>Spark's RPC brings them to {@code fs.IndexEndpoint}, which has {@link
 *       io.pyspark.statestore.service.FairThreads}
 *   <li>{@link io.pyspark.statestore.service.IndexService} answers from the driver's index
 * </ol>
 */
package io.pyspark.statestore.service;
