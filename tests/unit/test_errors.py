"""The catalogue of errors, and the one exception."""

import pickle

import pytest

from pyspark_statestore.errors import ERROR_CLASSES, StateStoreFilesError, parameters_of


@pytest.mark.parametrize("error_class", ERROR_CLASSES)
def test_message_starts_with_the_id_and_holds_every_parameter(error_class: str) -> None:
    parameters = {name: f"<the {name}>" for name in parameters_of(error_class)}

    error = StateStoreFilesError(error_class, parameters)

    assert str(error).startswith(f"[{error_class}] ")
    assert all(value in str(error) for value in parameters.values())
    assert error.getErrorClass() == error.getCondition() == error_class
    assert error.getMessageParameters() == parameters
    assert error.getMessage() == str(error)


@pytest.mark.parametrize("error_class", ERROR_CLASSES)
def test_a_missing_parameter_hides_nothing(error_class: str) -> None:
    assert str(StateStoreFilesError(error_class, {})).startswith(f"[{error_class}] ")


def test_braces_in_a_value_are_only_text() -> None:
    error = StateStoreFilesError("PSS_BAD_PATH", {"path": "/a/{reason}/{0}", "reason": "{x}"})

    assert "'/a/{reason}/{0}'" in str(error)
    assert "{x}" in str(error)


def test_errors_travel_by_pickle() -> None:
    error = StateStoreFilesError("PSS_BAD_PATH", {"path": "x", "reason": "y"})

    back = pickle.loads(pickle.dumps(error))

    assert str(back) == str(error)
    assert back.getMessageParameters() == error.getMessageParameters()


def test_unknown_ids_are_refused() -> None:
    with pytest.raises(KeyError):
        StateStoreFilesError("PSS_NO_SUCH_ID", {})
