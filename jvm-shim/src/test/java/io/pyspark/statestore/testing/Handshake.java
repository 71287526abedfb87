package io.pyspark.statestore.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Stops a task of whatever process at a chosen row: {@code SELECT reflect('io.pyspark.statestore.testing.Handshake',
 * 'pass', cast(k AS string), '/a/directory')}. The test makes the file {@code hold-<k>} there; the first task that comes
 * by makes {@code held-<k>} with its process id and waits until {@code hold-<k>} is gone. Others pass.
 */
public final class Handshake {
    private static final long PATIENCE_MS = 120_000;

    private Handshake() {}

    /** Called for each row; returns the value. */
    public static String pass(String row, String directory) {
        Path hold = Path.of(directory, "hold-" + row);
        if (Files.exists(hold) && taken(Path.of(directory, "held-" + row))) {
            long end = System.currentTimeMillis() + PATIENCE_MS;
            while (Files.exists(hold)) {
                if (System.currentTimeMillis() > end) {
                    throw new IllegalStateException("nobody let the task go on that is held at row " + row);
                }
                try {
                    Thread.sleep(20);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    throw new IllegalStateException("the task that is held at row " + row + " was killed", e);
                }
            }
        }
        return row;
    }

    private static boolean taken(Path held) {
        Path unfinished = held.resolveSibling("." + held.getFileName() + ProcessHandle.current().pid() + "-"
                + Thread.currentThread().getId());
        try {
            Files.writeString(unfinished, Long.toString(ProcessHandle.current().pid()));
            try {
                // Fails where another task was first, and is never seen without its content.
                Files.createLink(held, unfinished);
                return true;
            } catch (FileAlreadyExistsException e) {
                return false;
            } finally {
                Files.delete(unfinished);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
