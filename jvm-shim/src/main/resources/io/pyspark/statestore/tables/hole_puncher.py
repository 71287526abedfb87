"""Gives parts of files back to the disk, as HolePuncher tells it. It ends when that closes its input."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

KEEP_SIZE, PUNCH_HOLE = 1, 2  # linux/falloc.h
GONE = 1

fallocate = ctypes.CDLL(None, use_errno=True).fallocate
fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)


def read(count: int) -> bytes:
    """Reads so many bytes; where there are no more, the process ends."""
    found = sys.stdin.buffer.read(count)
    if len(found) < count:
        sys.exit(0)
    return found


def number() -> int:
    """Reads a number."""
    return int(struct.unpack(">i", read(4))[0])


def punch(name: bytes, identity: bytes, numbers: tuple[int, ...]) -> int:
    """Makes holes: offset, length, offset, ... Returns 0, GONE where the file is, or less than 0: an error number."""
    try:
        file = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return GONE
    except OSError as error:
        return -(error.errno or 5)
    try:
        status = os.fstat(file)
        # As Java writes it (sun.nio.fs.UnixFileKey).
        if identity != b"(dev=%x,ino=%d)" % (status.st_dev, status.st_ino):
            return GONE
        for at in range(0, len(numbers), 2):
            if fallocate(file, PUNCH_HOLE | KEEP_SIZE, numbers[at], numbers[at + 1]):
                return -ctypes.get_errno()
        return 0
    finally:
        os.close(file)


while True:
    name, identity = read(number()), read(number())
    count = number()
    numbers = struct.unpack(f">{2 * count}q", read(16 * count))
    answer = punch(name, identity, numbers)
    sys.stdout.buffer.write(struct.pack(">i", answer))
    sys.stdout.buffer.flush()
