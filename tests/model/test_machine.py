"""Random histories, over the Python index and over the Java index, by the same rules.

``make soak`` runs a hundred times as many.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.conftest import model_settings
from tests.model.java_view import JavaView
from tests.model.machine import Machine
from tests.model.rules import Rules
from tests.model.views import View
from tests.sampling import sampled

WRONG = r"came back|is lost|does not see|took .* over|is right"


def machine(rules: Rules, jvm: Any = None) -> type[Machine]:
    """The machine for one index: Java's where there is a JVM."""

    class Bound(Machine):
        abides_by = rules

        def make_view(self) -> View:
            return JavaView(jvm) if jvm else super().make_view()

    return Bound


def test_the_python_index_loses_nothing_and_brings_nothing_back() -> None:
    run_state_machine_as_test(machine(Rules()), settings=model_settings())


@pytest.mark.spark
def test_the_java_index_loses_nothing_and_brings_nothing_back(jvm: Any) -> None:
    run_state_machine_as_test(machine(Rules(), jvm), settings=model_settings())


@pytest.mark.parametrize(
    "rule",
    sampled(
        [
            "take_over_refreshes",
            "deletes_kill_what_they_saw",
            "carries_tombstones",
            "pins_are_honoured",
            "own_pins_come_first",
            "own_pins_are_needed",
        ],
        3,
    ),
)
def test_the_machine_finds_what_is_left_out_in_python(rule: str) -> None:
    with pytest.raises(AssertionError, match=WRONG):
        run_state_machine_as_test(machine(Rules(**{rule: False})), settings=settings.get_profile("mutant"))


@pytest.mark.spark
@pytest.mark.parametrize(
    "rule", sampled(["deletes_kill_what_they_saw", "carries_tombstones", "pins_are_honoured", "own_pins_are_needed"], 2)
)
def test_the_machine_finds_what_is_left_out_in_java(rule: str, jvm: Any) -> None:
    with pytest.raises(AssertionError, match=WRONG):
        run_state_machine_as_test(machine(Rules(**{rule: False}), jvm), settings=settings.get_profile("mutant"))
