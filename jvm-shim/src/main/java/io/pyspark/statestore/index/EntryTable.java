package io.pyspark.statestore.index;

import io.pyspark.statestore.format.Entry;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/**
 * Entries by name, in as few bytes as possible: one array holds a record per entry, and an open-addressing hash says
 * where the records of a name begin. Both grow by small steps, since most tables are small and there are many.
 *
 * <p>A record has 24 bytes of fixed width (kind, type, generation, checksum, stamp, writer), then numbers of 1 byte for
 * each 7 bits (the file; for a segment its offset, length and file reference; the length of the name), then the {@link
 * PackedName}. A tombstone has no checksum. What is known of its being needed stands there instead.
 *
 * <p>A slot is where a record is found. It holds until the next {@link #add} or {@link #remove}.
 */
final class EntryTable {
  /** No such slot. */
  static final int NONE = -1;

  private static final VarHandle SHORTS = view(short[].class);
  private static final VarHandle INTS = view(int[].class);
  private static final VarHandle LONGS = view(long[].class);
  private static final int TYPE = 1;
  private static final int GENERATION = 2;
  private static final int EXTRA = 4;
  private static final int STAMP = 8;
  private static final int WRITER = 16;
  private static final int FILE = 24;

  private byte[] records = {};

  /** Bytes of all records, those that were removed included. */
  private int used;

  private int removed;

  /** Where a record begins, plus 1; 0 in an empty slot. At least a quarter is empty, so each search ends. */
  private int[] slots = new int[2];

  private int count;

  private static VarHandle view(Class<?> array) {
    return MethodHandles.byteArrayViewVarHandle(array, ByteOrder.LITTLE_ENDIAN);
  }

  int count() {
    return count;
  }

  // ---- searching

  /** How many slots there are, empty ones included. */
  int slots() {
    return slots.length;
  }

  boolean isEmpty(int slot) {
    return slots[slot] == 0;
  }

  /** The first slot of a name's records, or {@link #NONE}. */
  int first(byte[] name, int hash) {
    return search(name, home(hash));
  }

  /** The next slot of a name's records, or {@link #NONE}. */
  int next(byte[] name, int slot) {
    return search(name, after(slot));
  }

  private int search(byte[] name, int slot) {
    while (slots[slot] != 0) {
      int start = nameStart(slot);
      if (PackedName.equal(name, records, start, start + nameLength(slot))) {
        return slot;
      }
      slot = after(slot);
    }
    return NONE;
  }

  /** The first slot of records of names that have a hash, or {@link #NONE}; a few others may be among them. */
  int firstNear(int hash) {
    return slots[home(hash)] == 0 ? NONE : home(hash);
  }

  /** The next one. */
  int nextNear(int slot) {
    return slots[after(slot)] == 0 ? NONE : after(slot);
  }

  private int home(int hash) {
    return (int) ((hash & 0xffffffffL) * slots.length >>> 32);
  }

  private int after(int slot) {
    return slot + 1 == slots.length ? 0 : slot + 1;
  }

  // ---- what is in a record

  boolean isPut(int slot) {
    return records[at(slot)] == Entry.PUT;
  }

  /** The number of the file that holds the entry. */
  int file(int slot) {
    return (int) number(at(slot) + FILE);
  }

  /** What {@link #note} has put into a tombstone; 0 where nothing has. */
  int note(int slot) {
    return (int) INTS.get(records, at(slot) + EXTRA);
  }

  void note(int slot, int value) {
    INTS.set(records, at(slot) + EXTRA, value);
  }

  String name(int slot) {
    int start = nameStart(slot);
    return PackedName.unpack(records, start, start + nameLength(slot));
  }

  int hash(int slot) {
    int start = nameStart(slot);
    return PackedName.hash(records, start, start + nameLength(slot));
  }

  /** The entry, with its whole path. */
  Entry entry(int slot, String path) {
    int at = at(slot);
    int generation = (short) SHORTS.get(records, at + GENERATION) & 0xffff;
    long stamp = (long) LONGS.get(records, at + STAMP);
    long writer = (long) LONGS.get(records, at + WRITER);
    if (!isPut(slot)) {
      return Entry.tombstone(path, generation, stamp, writer);
    }
    int offset = end(at + FILE);
    int length = end(offset);
    return new Entry(
        Entry.PUT,
        records[at + TYPE] & 0xff,
        generation,
        (int) INTS.get(records, at + EXTRA),
        stamp,
        writer,
        number(offset),
        number(length),
        (int) number(end(length)),
        path);
  }

  private int at(int slot) {
    return slots[slot] - 1;
  }

  /** Where the length of the name stands. */
  private int nameLengthAt(int slot) {
    int afterFile = end(at(slot) + FILE);
    return isPut(slot) ? end(end(end(afterFile))) : afterFile;
  }

  private int nameLength(int slot) {
    return (int) number(nameLengthAt(slot));
  }

  private int nameStart(int slot) {
    return end(nameLengthAt(slot));
  }

  private int length(int slot) {
    return nameStart(slot) + nameLength(slot) - at(slot);
  }

  // ---- changing

  void add(Entry entry, byte[] name, int hash, int file) {
    int length = FILE + size(file) + size(name.length) + name.length;
    if (entry.isPut()) {
      length += size(entry.offset()) + size(entry.length()) + size(entry.fileRef());
    }
    if (used + length > records.length) {
      rebuild(length);
    }
    if (4 * (count + 1) > 3 * slots.length) {
      rehash();
    }
    int at = used;
    records[at] = (byte) entry.kind();
    records[at + TYPE] = (byte) entry.type();
    SHORTS.set(records, at + GENERATION, (short) entry.generation());
    INTS.set(records, at + EXTRA, entry.isPut() ? entry.crc32c() : 0);
    LONGS.set(records, at + STAMP, entry.stamp());
    LONGS.set(records, at + WRITER, entry.writer());
    int to = put(at + FILE, file);
    if (entry.isPut()) {
      to = put(put(put(to, entry.offset()), entry.length()), entry.fileRef());
    }
    to = put(to, name.length);
    System.arraycopy(name, 0, records, to, name.length);
    used += length;
    count++;
    place(at, hash);
  }

  private void place(int at, int hash) {
    int slot = home(hash);
    while (slots[slot] != 0) {
      slot = after(slot);
    }
    slots[slot] = at + 1;
  }

  void remove(int slot) {
    removed += length(slot);
    count--;
    // What stands behind moves up, so that no search ends too early.
    int hole = slot;
    for (int next = after(slot); slots[next] != 0; next = after(next)) {
      int home = home(hash(next));
      boolean mayStay = hole < next ? hole < home && home <= next : hole < home || home <= next;
      if (!mayStay) {
        slots[hole] = slots[next];
        hole = next;
      }
    }
    slots[hole] = 0;
    if (2 * removed > used) {
      rebuild(0);
      rehash();
    }
  }

  /** Drops the bytes of removed records, and makes room for one more and a few. */
  private void rebuild(int more) {
    int kept = used - removed;
    byte[] rebuilt = new byte[Math.addExact(kept + (kept >> 4), more)];
    if (removed == 0) {
      System.arraycopy(records, 0, rebuilt, 0, used);
    } else {
      int to = 0;
      for (int slot = 0; slot < slots.length; slot++) {
        if (slots[slot] != 0) {
          int length = length(slot);
          System.arraycopy(records, at(slot), rebuilt, to, length);
          slots[slot] = -(to + 1);
          to += length;
        }
      }
      for (int slot = 0; slot < slots.length; slot++) {
        slots[slot] = -slots[slot];
      }
    }
    records = rebuilt;
    used = kept;
    removed = 0;
  }

  private void rehash() {
    int[] before = slots;
    int[] hashes = new int[before.length];
    for (int slot = 0; slot < before.length; slot++) {
      hashes[slot] = before[slot] == 0 ? 0 : hash(slot);
    }
    slots = new int[count + count / 2 + count / 4 + 2];
    for (int slot = 0; slot < before.length; slot++) {
      if (before[slot] != 0) {
        place(before[slot] - 1, hashes[slot]);
      }
    }
  }

  // ---- numbers of 7 bits a byte

  private long number(int at) {
    long value = 0;
    for (int shift = 0; ; shift += 7, at++) {
      value |= (records[at] & 0x7fL) << shift;
      if (records[at] >= 0) {
        return value;
      }
    }
  }

  /** Where the number at a place ends. */
  private int end(int at) {
    while (records[at] < 0) {
      at++;
    }
    return at + 1;
  }

  private int put(int at, long value) {
    for (; (value & ~0x7fL) != 0; value >>>= 7) {
      records[at++] = (byte) (value | 0x80);
    }
    records[at] = (byte) value;
    return at + 1;
  }

  private static int size(long value) {
    return value == 0 ? 1 : (70 - Long.numberOfLeadingZeros(value)) / 7;
  }
}
