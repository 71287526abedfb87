"""Random histories with an index service. ``make soak`` runs a hundred times as many."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.conftest import model_settings
from tests.model.served_machine import ServedMachine
from tests.model.served_rules import ServedRules

WRONG = r"came back|is lost|does not see|took .* over|is right|is led to"


def machine(rules: ServedRules) -> type[ServedMachine]:
    """The machine, abiding by some rules."""

    class Bound(ServedMachine):
        abides_by = rules

    return Bound


def test_whoever_is_served_loses_nothing_in_python() -> None:
    run_state_machine_as_test(machine(ServedRules()), settings=model_settings())


@pytest.mark.parametrize("rule", ["reports_before_acknowledging", "asks_at_every_load", "stamps_are_observed"])
def test_the_machine_finds_what_is_left_out(rule: str) -> None:
    with pytest.raises(AssertionError, match=WRONG):
        run_state_machine_as_test(machine(ServedRules(**{rule: False})), settings=settings.get_profile("mutant"))
