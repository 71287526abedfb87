"""Random histories with an index service. ``make soak`` runs a hundred times as many."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.conftest import model_settings
from tests.model.java_view import ServedJavaView
from tests.model.served_machine import ServedMachine
from tests.model.served_rules import ServedRules
from tests.model.views import ServedView

WRONG = r"came back|is lost|does not see|took .* over|is right|is led to"


def machine(rules: ServedRules, jvm: Any = None) -> type[ServedMachine]:
    """The machine for one index: Java's where there is a JVM."""

    class Bound(ServedMachine):
        abides_by = rules

        def make_view(self) -> ServedView:
            return ServedJavaView(jvm) if jvm else super().make_view()

    return Bound


def test_whoever_is_served_loses_nothing_in_python() -> None:
    run_state_machine_as_test(machine(ServedRules()), settings=model_settings())


@pytest.mark.spark
def test_whoever_is_served_loses_nothing_in_java(jvm: Any) -> None:
    run_state_machine_as_test(machine(ServedRules(), jvm), settings=model_settings(50))


@pytest.mark.parametrize("rule", ["reports_before_acknowledging", "asks_at_every_load", "stamps_are_observed"])
def test_the_machine_finds_what_is_left_out(rule: str) -> None:
    with pytest.raises(AssertionError, match=WRONG):
        run_state_machine_as_test(machine(ServedRules(**{rule: False})), settings=settings.get_profile("mutant"))
