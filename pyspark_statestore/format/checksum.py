"""The format's one checksum."""

import google_crc32c


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C (Castagnoli) of some bytes."""
    return int(google_crc32c.value(data))
