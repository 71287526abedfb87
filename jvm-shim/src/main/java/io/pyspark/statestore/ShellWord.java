package io.pyspark.statestore;

import java.util.regex.Pattern;

/** A text as a shell takes it for one word, for the commands that messages and pages give to paste. */
public final class ShellWord {
  private static final Pattern NEEDS_NO_QUOTES = Pattern.compile("[A-Za-z0-9_@%+=:,./-]+");

  private ShellWord() {}

  /** The text, in quotes where a shell would take it apart; as Python's {@code shlex.quote} does. */
  public static String of(Object text) {
    String word = text.toString();
    return NEEDS_NO_QUOTES.matcher(word).matches() ? word : "'" + word.replace("'", "'\\''") + "'";
  }
}
