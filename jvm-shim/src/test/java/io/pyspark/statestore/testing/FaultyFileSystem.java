package io.pyspark.statestore.testing;

import java.io.Closeable;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.reflect.Constructor;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSError;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.AccessControlException;

/**
 * The local disk under {@code faulty:}, where chosen calls fail. It counts like {@link CountingFileSystem}; a call that is
 * made to fail before it does anything is not counted.
 *
 * <p>Kinds of faults:
 *
 * <ul>
 *   <li>{@code ioexception}: nothing is done. A failed close() loses what was not flushed.
 *   <li>{@code permission}: the same, as AccessControlException.
 *   <li>{@code no_space}: half of the bytes arrive, then "No space left on device".
 *   <li>{@code torn}: half of the bytes arrive (of the write, or of what a flush or close had to bring out), then an error; the
 *       stream is broken from then on.
 *   <li>{@code fs_error}: as no_space, but thrown as FSError, an Error, which is what the local file systems of Hadoop really do.
 *   <li>{@code success_but_error}: the call does its work, and then reports a failure.
 * </ul>
 */
public final class FaultyFileSystem extends ObservedFileSystem {
    private static final Set<String> KINDS =
            Set.of("ioexception", "permission", "no_space", "torn", "fs_error", "success_but_error");
    private static final Set<String> OPERATIONS = Set.of(
            "create", "append", "open", "read", "write", "hflush", "hsync", "close", "getFileStatus", "listStatus", "delete",
            "rename", "mkdirs", "other");
    private static final List<Rule> RULES = new CopyOnWriteArrayList<>();
    private static final AtomicInteger FIRED = new AtomicInteger();

    private record Rule(String operation, String contains, int first, int last, String kind, AtomicInteger seen) {
        boolean is(String... kinds) {
            return List.of(kinds).contains(kind);
        }
    }

    @Override
    public String getScheme() {
        return "faulty";
    }

    // ---- rules, for py4j -----------------------------------------------------------------------------------------------

    /** Makes the n-th (from 1) call of an operation fail whose path contains a text (for rename: its target). */
    public static void addRule(String operation, String pathContains, int nth, String kind) {
        addRule(operation, pathContains, nth, 1, kind);
    }

    /** As {@link #addRule(String, String, int, String)}, for {@code times} calls in a row. */
    public static void addRule(String operation, String pathContains, int nth, int times, String kind) {
        if (!OPERATIONS.contains(operation) || !KINDS.contains(kind) || nth < 1 || times < 1) {
            throw new IllegalArgumentException(
                    "no such rule: " + operation + " " + nth + "+" + times + " " + kind + "; operations " + OPERATIONS
                            + ", kinds " + KINDS);
        }
        RULES.add(new Rule(operation, pathContains, nth, nth + times - 1, kind, new AtomicInteger()));
    }

    /** How many calls were made to fail since the last clear(). */
    public static int fired() {
        return FIRED.get();
    }

    /** Forgets all rules and how often they fired. */
    public static void clear() {
        RULES.clear();
        FIRED.set(0);
    }

    /** The rule that makes this call fail, or null. Every matching rule sees the call. */
    private static Rule fault(String operation, Path path) {
        Rule hit = null;
        for (Rule rule : RULES) {
            if (rule.operation.equals(operation) && path.toString().contains(rule.contains)) {
                int n = rule.seen.incrementAndGet();
                if (n >= rule.first && n <= rule.last && hit == null) {
                    hit = rule;
                }
            }
        }
        if (hit != null) {
            FIRED.incrementAndGet();
        }
        return hit;
    }

    private static IOException failure(Rule rule, Path path) {
        String what = "injected fault (" + rule.kind + ") in " + rule.operation + " of " + path;
        return switch (rule.kind) {
            case "permission" -> new AccessControlException("Permission denied: " + what);
            case "no_space" -> new IOException("No space left on device: " + what);
            case "fs_error" -> throw fsError(new IOException("No space left on device: " + what));
            default -> new IOException(what);
        };
    }

    private static FSError fsError(IOException cause) {
        try {
            Constructor<FSError> constructor = FSError.class.getDeclaredConstructor(Throwable.class);
            constructor.setAccessible(true);
            return constructor.newInstance(cause);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    // ---- faults ---------------------------------------------------------------------------------------------------------

    @Override
    protected <T> T around(String operation, Path path, Io<T> body) throws IOException {
        Rule rule = fault(operation, path);
        if (rule == null) {
            return super.around(operation, path, body);
        }
        if (rule.is("success_but_error")) {
            T result = super.around(operation, path, body);
            if (result instanceof Closeable stream) {
                stream.close();
            }
        }
        throw failure(rule, path);
    }

    @Override
    protected long aroundData(String operation, Path path, Io<Long> body) throws IOException {
        Rule rule = operation.equals("read") ? fault(operation, path) : null;
        if (rule != null) {
            throw failure(rule, path);
        }
        return super.aroundData(operation, path, body);
    }

    @Override
    protected ObservedOutputStream observe(Path path, FSDataOutputStream stream) {
        return new FaultyOutputStream(path, stream);
    }

    private final class FaultyOutputStream extends ObservedOutputStream {
        private long flushed;
        private boolean broken;
        private boolean ended;

        FaultyOutputStream(Path path, FSDataOutputStream inner) {
            super(FaultyFileSystem.this, path, inner);
            this.flushed = inner.getPos();
        }

        @Override
        public void write(byte[] b, int off, int len) throws IOException {
            requireSound();
            Rule rule = fault("write", path);
            if (rule == null) {
                super.write(b, off, len);
                return;
            }
            if (rule.is("success_but_error")) {
                super.write(b, off, len);
            } else if (rule.is("torn", "no_space", "fs_error")) {
                super.write(b, off, len / 2);
                inner.flush();
                broken = rule.is("torn");
            }
            throw failure(rule, path);
        }

        @Override
        public void hflush() throws IOException {
            flush("hflush");
        }

        @Override
        public void hsync() throws IOException {
            flush("hsync");
        }

        private void flush(String operation) throws IOException {
            requireSound();
            Rule rule = fault(operation, path);
            if (rule == null || rule.is("success_but_error")) {
                if (operation.equals("hsync")) {
                    super.hsync();
                } else {
                    super.hflush();
                }
                flushed = inner.getPos();
            } else if (rule.is("torn", "no_space", "fs_error")) {
                inner.flush();
                cutTo(flushed + (inner.getPos() - flushed) / 2);
                broken = true;
            }
            if (rule != null) {
                throw failure(rule, path);
            }
        }

        @Override
        public void close() throws IOException {
            if (ended) {
                return;
            }
            ended = true;
            Rule rule = fault("close", path);
            if (rule == null || rule.is("success_but_error")) {
                super.close();
            } else {
                long length = inner.getPos();
                inner.close();
                cutTo(rule.is("torn", "no_space", "fs_error") ? flushed + (length - flushed) / 2 : flushed);
            }
            if (rule != null) {
                throw failure(rule, path);
            }
        }

        private void requireSound() throws IOException {
            if (broken) {
                throw new IOException("the stream of " + path + " failed before");
            }
        }

        private void cutTo(long length) throws IOException {
            // A file that was renamed or deleted meanwhile must not come back.
            if (pathToFile(path).exists()) {
                try (RandomAccessFile file = new RandomAccessFile(pathToFile(path), "rw")) {
                    file.setLength(Math.min(length, file.length()));
                }
            }
        }
    }
}
