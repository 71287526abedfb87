"""Writes SHA256SUMS for what is published, and signs it if a key is named.

    python -m release.checksums dist
    python -m release.checksums dist --sign-with gpg:0123456789ABCDEF
    python -m release.checksums dist --sign-with ssh:~/.ssh/release

A signature is made by gpg or ssh-keygen, and checked at once. Without a key there is none, and the output says so.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SUMS = "SHA256SUMS"
NAMESPACE = "file"
"""What ssh-keygen calls the purpose of a signature, which who verifies it has to name, too."""
_PUBLISHED = (".whl", ".tar.gz")


class ReleaseError(Exception):
    """An error that whoever releases can fix; the message says how."""


def write(folder: Path) -> Path:
    """Writes the checksums of all that is published, as ``sha256sum --check`` reads them. Old signatures go.

    Args:
        folder: Has what is published, and nothing else.

    Returns:
        The file with the checksums.

    Raises:
        ReleaseError: Nothing is to be published, or something else is there.
    """
    sums = folder / SUMS
    for old in folder.glob(f"{SUMS}*"):
        old.unlink()
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    others = [file.name for file in files if not file.name.endswith(_PUBLISHED)]
    if others or not files:
        there = f"{', '.join(others)} is there, too" if others else "there is nothing"
        raise ReleaseError(f"{folder} has to hold a wheel and a source distribution, and {there}")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    sums.write_text("".join(lines), encoding="utf-8")
    return sums


def sign(sums: Path, key: str) -> Path:
    """Signs the checksums, and checks the signature.

    Args:
        sums: The checksums.
        key: ``gpg:`` and the id of a key, or ``ssh:`` and the file of one, which may be a public key of an agent's.

    Returns:
        The signature.

    Raises:
        ReleaseError: There is no such key, or no program for it. No signature is left then.
    """
    kind, _, name = key.partition(":")
    if kind not in ("gpg", "ssh") or not name:
        raise ReleaseError(f"{key!r} names no key: it has to be gpg:<id of a key> or ssh:<file of a key>")
    signature = sums.with_name(f"{SUMS}.{'asc' if kind == 'gpg' else 'sig'}")
    try:
        if kind == "gpg":
            _run("gpg", "--local-user", name, "--armor", "--output", signature, "--detach-sign", sums)
            _run("gpg", "--verify", signature, sums)
        else:
            _run("ssh-keygen", "-Y", "sign", "-f", Path(name).expanduser(), "-n", NAMESPACE, sums)
            _run("ssh-keygen", "-Y", "check-novalidate", "-n", NAMESPACE, "-s", signature, stdin=sums)
    except ReleaseError:
        signature.unlink(missing_ok=True)
        raise
    return signature


def _run(program: str, *arguments: str | Path, stdin: Path | None = None) -> None:
    command = [program, *map(str, arguments)]
    try:
        if stdin is None:
            # A passphrase is asked for on the terminal.
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        else:
            with stdin.open("rb") as file:
                done = subprocess.run(command, stdin=file, stderr=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise ReleaseError(f"{program} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise ReleaseError(f"{program} failed: {' '.join(done.stderr.split()) or 'it did not say why'}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Writes the checksums of a release, and signs them.")
    parser.add_argument("folder", type=Path, help="has what is published")
    parser.add_argument("--sign-with", metavar="KEY", default="", help="gpg:<id of a key> or ssh:<file of a key>")
    options = parser.parse_args(arguments)
    try:
        sums = write(options.folder)
        print(sums.read_text(encoding="utf-8"), end="")
        if options.sign_with:
            print(f"{sign(sums, options.sign_with)} is their signature.")
        else:
            print(
                f"{sums} is NOT SIGNED: no key was named. make release SIGN_WITH=gpg:<id of a key>, or "
                "SIGN_WITH=ssh:<file of a key>, signs it.",
                file=sys.stderr,
            )
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
