"""Messages in the command line's language: options as they are typed here, and no Python.

The package's messages name arguments, because most people meet them in Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_WORDS = (
    (re.compile(r"force=True \(--force\)"), "--force"),
    (re.compile(r"\bforce=True"), "--force"),
    (re.compile(r"\bstore_name='([^']*)' \(--store\)"), r"--store \1"),
    (re.compile(r"with force\."), "with --force."),
    (re.compile(r"\bcompact\(localize=True\)"), "pyspark-statestore compact --localize"),
    (re.compile(r"\bmode='(claim|copy)'"), r"--mode \1"),
    (re.compile(r"\ba datetime\.timedelta of at least an hour"), "a duration of an hour or more, such as 3h"),
    (re.compile(r"\ba datetime\.timedelta of (at least )?0( or more)?"), "a duration, such as 10m"),
    (re.compile(r"\bGive Checkpoint\(\)"), "Give"),
)
_ARGUMENT = re.compile(r"^(\[PSS_INVALID_OPTION\] )(\w+) = (?:'([^']*)'|\"([^\"]*)\")")


def spoken(message: str, options: Mapping[str, str] = MappingProxyType({})) -> str:
    """Returns a message of the package for somebody who typed a command.

    Args:
        message: The message, which begins with its id.
        options: The command's options, such as ``--older-than``, by their names in Python.
    """
    found = _ARGUMENT.match(message)
    if found and found[2] in options:
        option, value, rest = options[found[2]], found[3] or found[4] or "", message[found.end() :]
        message = f"{found[1]}{option} {value}{rest}"
        if value == "None":  # nobody has typed that
            message = f"{found[1]}{option} has to be given here. {rest.removeprefix(' is not allowed. ')}"
    for pattern, said in _WORDS:
        message = pattern.sub(said, message)
    return message
