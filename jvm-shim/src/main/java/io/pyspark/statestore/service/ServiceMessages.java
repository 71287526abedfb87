package io.pyspark.statestore.service;

import io.pyspark.statestore.StateStoreFilesException.Id;
import io.pyspark.statestore.clean.Garbage;
import io.pyspark.statestore.format.Entry;
import io.pyspark.statestore.index.Index;
import io.pyspark.statestore.index.MergedFile;
import io.pyspark.statestore.write.BatchDebts;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What executors ask the {@link IndexService}, and what it answers, as bytes: the class loader with which Spark reads a
 * remote message does not know the jars that a user has added, so a message has no class of ours.
 *
 * <p>Both sides come from the same jar of the same application. The version only shows where they do not.
 */
public final class ServiceMessages {
  private static final byte VERSION = 2;

  /** Characters of a text that is for people. UTF-8 takes at most three times as many bytes, and 64 KiB are allowed. */
  private static final int LONGEST_TEXT = 10_000;

  private ServiceMessages() {}

  // ---- questions

  /** What an executor asks or says. */
  public sealed interface Question permits Open, OpenQuestion, BatchQuestion {}

  /** A question about a checkpoint that is open; it names the service's epoch. */
  public sealed interface OpenQuestion extends Question permits Report, AskFacts, Left, AskMoves {
    long epoch();
  }

  /** Asks for the service of a checkpoint, as new as a run of its query needs it. */
  public record Open(String stateDirectory, String queryRunId) implements Question {}

  /**
   * Says that a group is durable.
   *
   * @param trailer offset of the group's trailer
   * @param stamp the group's
   * @param sealed whether its writer appends no more to the file
   * @param entries of the group; none where the file was only sealed
   */
  public record Report(
      long epoch, long writer, String file, long size, long trailer, long stamp, boolean sealed, List<Entry> entries)
      implements OpenQuestion {}

  /**
   * Asks what is known of partitions.
   *
   * @param goneSince the number up to which the asker knows which files are gone
   * @param revisions by partition, the revision that the asker has
   * @param filesFirst whether the service has to read the files first
   */
  public record AskFacts(long epoch, long writer, long goneSince, Map<String, Long> revisions, boolean filesFirst)
      implements OpenQuestion {}

  /**
   * Says that the writer of a file left it after a failure: what reached it, only its end shows.
   *
   * @param stamp the highest that may have reached it. Whoever writes the same again needs a higher one
   */
  record Left(long epoch, long writer, String file, long stamp) implements OpenQuestion {}

  /** Asks out of which files live segments of these partitions should be moved. */
  record AskMoves(long epoch, long writer, List<String> partitions) implements OpenQuestion {}

  /** A question about what an executor owes to a batch ({@link BatchDebts}); it does not depend on an epoch. */
  public sealed interface BatchQuestion extends Question permits Owes, AskCall, Paid {
    String stateDirectory();

    long writer();

    String run();

    long batch();
  }

  /** Says that commits of a batch wait for its end. */
  public record Owes(String stateDirectory, long writer, String run, long batch) implements BatchQuestion {}

  /** Asks whether the batch ends. The answer may take {@link BatchDebts#ASK_MS}. */
  public record AskCall(String stateDirectory, long writer, String run, long batch) implements BatchQuestion {}

  /**
   * @param failure why the commits are not durable; empty where they are
   */
  public record Paid(String stateDirectory, long writer, String run, long batch, String failure)
      implements BatchQuestion {}

  // ---- answers

  /** What the service answers. */
  public sealed interface Answer permits Opened, Reported, Facts, Moves, Called, Refused {}

  /**
   * The service answers for a checkpoint.
   *
   * @param epoch names the service's view, and goes with every later question
   * @param stamp the highest that was seen
   * @param goneNow the number up to which files that are gone are not told any more
   */
  record Opened(long epoch, boolean bornMerged, long stamp, long goneNow) implements Answer {}

  /**
   * @param revisions by partition of the group, its revision before and after
   */
  record Reported(Map<String, Index.Span> revisions, long stamp, long liveBytes) implements Answer {}

  /**
   * What is known.
   *
   * @param goneNow the number up to which {@code gone} tells
   * @param gone names of files that were unlinked since
   * @param partitions those that have changed
   * @param left partitions that have to be asked for again, because the answer would be too long with them
   */
  record Facts(
      long stamp, long liveBytes, long goneNow, List<String> gone, List<PartitionFacts> partitions, List<String> left)
      implements Answer {}

  /** All entries of a partition. */
  record PartitionFacts(String partition, long revision, List<FileFacts> files) {
    /** About how many bytes it takes in a message. */
    long bytes() {
      return files.stream()
          .flatMap(file -> file.entries.stream())
          .mapToLong(e -> ENTRY_BYTES + e.path().length())
          .sum();
    }
  }

  /**
   * The entries that one file has.
   *
   * @param foreign of a reference file, the files of other checkpoints that it refers to; else empty
   */
  record FileFacts(String name, long size, boolean sealed, List<MergedFile.ForeignFile> foreign, List<Entry> entries) {}

  /** Out of which files to move live segments. */
  record Moves(Garbage.Moves moves) implements Answer {}

  /** What to do with the commits of a batch. */
  public record Called(BatchDebts.Call call) implements Answer {}

  /**
   * No answer.
   *
   * @param isStale whether the asker's log has to be opened anew
   * @param id of the error that says why; null where it is the service itself that cannot answer
   */
  public record Refused(boolean isStale, Id id, String reason) implements Answer {}

  // ---- bytes

  /** Of an entry without its path. */
  private static final int ENTRY_BYTES = 46;

  private static final int OPEN = 1;
  private static final int REPORT = 2;
  private static final int FACTS = 3;
  private static final int LEFT = 4;
  private static final int MOVES = 5;
  private static final int REFUSED = 6;
  private static final int OWES = 7;
  private static final int CALL = 8;
  private static final int PAID = 9;

  public static byte[] encode(Question question) {
    return bytes(
        out -> {
          if (question instanceof Open open) {
            out.writeByte(OPEN);
            out.writeUTF(open.stateDirectory);
            out.writeUTF(open.queryRunId);
          } else if (question instanceof Report report) {
            head(out, REPORT, report.epoch, report.writer);
            out.writeUTF(report.file);
            out.writeLong(report.size);
            out.writeLong(report.trailer);
            out.writeLong(report.stamp);
            out.writeBoolean(report.sealed);
            list(out, report.entries, ServiceMessages::write);
          } else if (question instanceof AskFacts facts) {
            head(out, FACTS, facts.epoch, facts.writer);
            out.writeLong(facts.goneSince);
            out.writeBoolean(facts.filesFirst);
            list(
                out,
                List.copyOf(facts.revisions.entrySet()),
                (o, e) -> {
                  o.writeUTF(e.getKey());
                  o.writeLong(e.getValue());
                });
          } else if (question instanceof Left left) {
            head(out, LEFT, left.epoch, left.writer);
            out.writeUTF(left.file);
            out.writeLong(left.stamp);
          } else if (question instanceof AskMoves moves) {
            head(out, MOVES, moves.epoch, moves.writer);
            list(out, moves.partitions, DataOutputStream::writeUTF);
          } else if (question instanceof BatchQuestion batch) {
            out.writeByte(batch instanceof Owes ? OWES : batch instanceof AskCall ? CALL : PAID);
            out.writeUTF(batch.stateDirectory());
            out.writeLong(batch.writer());
            out.writeUTF(batch.run());
            out.writeLong(batch.batch());
            if (batch instanceof Paid paid) {
              text(out, paid.failure);
            }
          }
        });
  }

  /** A failure's text may be as long as what a server has sent. */
  private static void text(DataOutputStream out, String text) throws IOException {
    out.writeUTF(text.substring(0, Math.min(text.length(), LONGEST_TEXT)));
  }

  private static void head(DataOutputStream out, int kind, long epoch, long writer) throws IOException {
    out.writeByte(kind);
    out.writeLong(epoch);
    out.writeLong(writer);
  }

  public static Question question(byte[] bytes) throws IOException {
    return read(
        bytes,
        in -> {
          int kind = in.readByte();
          if (kind == OPEN) {
            return new Open(in.readUTF(), in.readUTF());
          } else if (kind == OWES) {
            return new Owes(in.readUTF(), in.readLong(), in.readUTF(), in.readLong());
          } else if (kind == CALL) {
            return new AskCall(in.readUTF(), in.readLong(), in.readUTF(), in.readLong());
          } else if (kind == PAID) {
            return new Paid(in.readUTF(), in.readLong(), in.readUTF(), in.readLong(), in.readUTF());
          }
          long epoch = in.readLong();
          long writer = in.readLong();
          return switch (kind) {
            case REPORT ->
                new Report(
                    epoch,
                    writer,
                    in.readUTF(),
                    in.readLong(),
                    in.readLong(),
                    in.readLong(),
                    in.readBoolean(),
                    list(in, ServiceMessages::entry));
            case FACTS -> {
              long goneSince = in.readLong();
              boolean filesFirst = in.readBoolean();
              Map<String, Long> revisions = new LinkedHashMap<>();
              list(in, i -> revisions.put(i.readUTF(), i.readLong()));
              yield new AskFacts(epoch, writer, goneSince, revisions, filesFirst);
            }
            case LEFT -> new Left(epoch, writer, in.readUTF(), in.readLong());
            case MOVES -> new AskMoves(epoch, writer, list(in, i -> i.readUTF()));
            default -> throw new IOException("no question has the number " + kind);
          };
        });
  }

  /**
   * What the answer may have to wait for: questions for which this is equal wait for the same checkpoint's files. Null
   * where it waits for none. Reads no more of the question than its head.
   */
  public static String waitsFor(byte[] question) throws IOException {
    return read(
        question,
        in -> {
          int kind = in.readByte();
          if (kind == OPEN) {
            return "the files of " + in.readUTF();
          }
          if (kind == OWES || kind == CALL || kind == PAID) {
            return null;
          }
          String epoch = Long.toHexString(in.readLong());
          // After it come the writer and the number of what is gone.
          boolean filesFirst = kind == FACTS && in.skipBytes(2 * Long.BYTES) == 2 * Long.BYTES && in.readBoolean();
          return (filesFirst ? "the files of service " : "service ") + epoch + " for questions of kind " + kind;
        });
  }

  public static byte[] encode(Answer answer) {
    return bytes(
        out -> {
          if (answer instanceof Opened opened) {
            out.writeByte(OPEN);
            out.writeLong(opened.epoch);
            out.writeBoolean(opened.bornMerged);
            out.writeLong(opened.stamp);
            out.writeLong(opened.goneNow);
          } else if (answer instanceof Reported reported) {
            out.writeByte(REPORT);
            out.writeLong(reported.stamp);
            out.writeLong(reported.liveBytes);
            list(
                out,
                List.copyOf(reported.revisions.entrySet()),
                (o, e) -> {
                  o.writeUTF(e.getKey());
                  o.writeLong(e.getValue().before());
                  o.writeLong(e.getValue().after());
                });
          } else if (answer instanceof Facts facts) {
            out.writeByte(FACTS);
            out.writeLong(facts.stamp);
            out.writeLong(facts.liveBytes);
            out.writeLong(facts.goneNow);
            list(out, facts.gone, DataOutputStream::writeUTF);
            list(
                out,
                facts.partitions,
                (o, p) -> {
                  o.writeUTF(p.partition);
                  o.writeLong(p.revision);
                  list(o, p.files, ServiceMessages::write);
                });
            list(out, facts.left, DataOutputStream::writeUTF);
          } else if (answer instanceof Moves moves) {
            out.writeByte(MOVES);
            out.writeDouble(moves.moves.excess());
            out.writeBoolean(moves.moves.urgent());
            list(out, moves.moves.files(), ServiceMessages::write);
            list(out, moves.moves.joins(), ServiceMessages::write);
          } else if (answer instanceof Called called) {
            out.writeByte(CALL);
            out.writeByte(called.call.ordinal());
          } else if (answer instanceof Refused refused) {
            out.writeByte(REFUSED);
            out.writeBoolean(refused.isStale);
            out.writeUTF(refused.id == null ? "" : refused.id.name());
            text(out, refused.reason);
          }
        });
  }

  public static Answer answer(byte[] bytes) throws IOException {
    return read(
        bytes,
        in -> {
          int kind = in.readByte();
          return switch (kind) {
            case OPEN -> new Opened(in.readLong(), in.readBoolean(), in.readLong(), in.readLong());
            case REPORT -> {
              long stamp = in.readLong();
              long liveBytes = in.readLong();
              Map<String, Index.Span> revisions = new LinkedHashMap<>();
              list(in, i -> revisions.put(i.readUTF(), new Index.Span(i.readLong(), i.readLong())));
              yield new Reported(revisions, stamp, liveBytes);
            }
            case FACTS ->
                new Facts(
                    in.readLong(),
                    in.readLong(),
                    in.readLong(),
                    list(in, i -> i.readUTF()),
                    list(in, i -> new PartitionFacts(i.readUTF(), i.readLong(), list(i, ServiceMessages::fileFacts))),
                    list(in, i -> i.readUTF()));
            case MOVES ->
                new Moves(
                    new Garbage.Moves(
                        in.readDouble(),
                        in.readBoolean(),
                        list(in, ServiceMessages::move),
                        list(in, ServiceMessages::move)));
            case CALL -> new Called(BatchDebts.Call.values()[in.readByte()]);
            case REFUSED -> {
              boolean isStale = in.readBoolean();
              String id = in.readUTF();
              yield new Refused(isStale, id.isEmpty() ? null : Id.valueOf(id), in.readUTF());
            }
            default -> throw new IOException("no answer has the number " + kind);
          };
        });
  }

  private static void write(DataOutputStream out, Garbage.Move move) throws IOException {
    out.writeUTF(move.file());
    out.writeLong(move.size());
    out.writeLong(move.liveBytes());
  }

  private static Garbage.Move move(DataInputStream in) throws IOException {
    return new Garbage.Move(in.readUTF(), in.readLong(), in.readLong());
  }

  private static void write(DataOutputStream out, FileFacts file) throws IOException {
    out.writeUTF(file.name);
    out.writeLong(file.size);
    out.writeBoolean(file.sealed);
    list(
        out,
        file.foreign,
        (o, f) -> {
          o.writeUTF(f.path());
          o.writeLong(f.size());
        });
    list(out, file.entries, ServiceMessages::write);
  }

  private static FileFacts fileFacts(DataInputStream in) throws IOException {
    return new FileFacts(
        in.readUTF(),
        in.readLong(),
        in.readBoolean(),
        list(in, i -> new MergedFile.ForeignFile(i.readUTF(), i.readLong())),
        list(in, ServiceMessages::entry));
  }

  private static void write(DataOutputStream out, Entry entry) throws IOException {
    out.writeByte(entry.kind());
    out.writeByte(entry.type());
    out.writeShort(entry.generation());
    out.writeInt(entry.crc32c());
    out.writeLong(entry.stamp());
    out.writeLong(entry.writer());
    out.writeLong(entry.offset());
    out.writeLong(entry.length());
    out.writeInt(entry.fileRef());
    out.writeUTF(entry.path());
  }

  private static Entry entry(DataInputStream in) throws IOException {
    return new Entry(
        in.readUnsignedByte(),
        in.readUnsignedByte(),
        in.readUnsignedShort(),
        in.readInt(),
        in.readLong(),
        in.readLong(),
        in.readLong(),
        in.readLong(),
        in.readInt(),
        in.readUTF());
  }

  private interface Writes<T> {
    void write(DataOutputStream out, T value) throws IOException;
  }

  private interface Reads<T> {
    T read(DataInputStream in) throws IOException;
  }

  private static <T> void list(DataOutputStream out, List<T> values, Writes<T> writes) throws IOException {
    out.writeInt(values.size());
    for (T value : values) {
      writes.write(out, value);
    }
  }

  private static <T> List<T> list(DataInputStream in, Reads<T> reads) throws IOException {
    int count = in.readInt();
    if (count < 0 || count > in.available()) {
      throw new IOException("a list of " + count + " elements in " + in.available() + " bytes");
    }
    List<T> values = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      values.add(reads.read(in));
    }
    return values;
  }

  private interface Body {
    void write(DataOutputStream out) throws IOException;
  }

  private static byte[] bytes(Body body) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    try {
      out.writeByte(VERSION);
      body.write(out);
    } catch (IOException e) {
      // Memory does not fail; a name longer than 64 KiB, which no path rule allows, would.
      throw new IllegalArgumentException(e);
    }
    return bytes.toByteArray();
  }

  private static <T> T read(byte[] bytes, Reads<T> reads) throws IOException {
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes))) {
      int version = in.readByte();
      if (version != VERSION) {
        throw new IOException("the message has version " + version + ", not " + VERSION);
      }
      return reads.read(in);
    } catch (IOException | RuntimeException e) {
      throw new IOException(
          "A message between an executor and the index service cannot be read. Do both have the same"
              + " pyspark-statestore jar? "
              + e.getMessage(),
          e);
    }
  }
}
