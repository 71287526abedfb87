"""How a key is written on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import click

from pyspark_statestore.cli.options import ParamType

_FIELD = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)


class KeyOption(ParamType):
    """``FIELD=VALUE``, a JSON object, or a value; what is JSON is taken as JSON, any other as text."""

    name = "KEY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns values by field, or a value."""
        text = str(value)
        found = _FIELD.fullmatch(text)
        if found is None:
            return _value(text)
        key: Any = _value(found[2])
        for name in reversed(found[1].split(".")):
            key = {name: key}
        return key


def one_key(keys: Sequence[Any]) -> Any:
    """Puts what was given for ``--key`` together; None where nothing was.

    Raises:
        click.BadParameter: It does not go together.
    """
    if not keys:
        return None
    whole = keys[0]
    for key in keys[1:]:
        whole = _merged(whole, key)
    return whole


def _merged(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        raise click.BadParameter("two values for one field.", param_hint="--key")
    merged = dict(one)
    for name, value in other.items():
        merged[name] = _merged(merged[name], value) if name in merged else value
    return merged


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
