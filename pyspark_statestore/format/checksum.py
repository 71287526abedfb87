"""The format's one checksum."""

import google_crc32c


def crc32c(data: bytes, before: int = 0) -> int:
    """Returns the CRC-32C (Castagnoli) of some bytes.

    Args:
        data: The bytes.
        before: Of what comes before them.
    """
    return int(google_crc32c.extend(before, data))
