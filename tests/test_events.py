"""One JSON object a line, and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.events import KINDS, CacheState, Error, Event, Heavy, Token, Turn, from_json, to_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT, TEXT, TEXT)
def test_text_survives(code: str, message: str, hint: str) -> None:
    event = Error(code, message, hint)
    line = to_json(event)
    assert "\n" not in line
    assert from_json(line) == event


def test_nested_fields_come_back_as_they_were() -> None:
    heavy = Heavy(3, "dog", 0.5, 1.5, 0.1, "H")
    state = CacheState(9, 4, 100, 900, 0.1, {"S": 1}, [heavy], [(3, 0.5, 1.5)], [[0.5]])
    turn = Turn("hi", "eos", 1, 2, 3.0, 4.0, 5, 6, 7, 0.5, [(0, 0.25)])
    for event in (state, turn):
        assert from_json(to_json(event)) == event


def test_unknown_keys_are_ignored_and_the_name_is_on_every_line() -> None:
    line = to_json(Token(1, "a", 2, 3.0))
    data = json.loads(line)
    assert data["event"] == "token"
    assert from_json(json.dumps(data | {"later": 1})) == Token(1, "a", 2, 3.0)


def test_lone_surrogates_do_not_stop_a_recording() -> None:
    to_json(Token(1, "\ud800", 0, 0.0)).encode("utf-8")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[]", "list"),
        ('{"event": "nonsense"}', "nonsense"),
        ('{"event": "token"}', "token"),
        ('{"event": "cache", "heaviest": [{}]}', "cache"),
        ('{"event": "cache", "heaviest": 5}', "cache"),
        ('{"event": "turn", "hold": [1]}', "turn"),
        ("{", "Expecting"),
    ],
)
def test_bad_lines_are_refused_with_what_is_wrong(line: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_json(line)


def test_every_event_has_its_own_name() -> None:
    kinds: list[type[Event]] = list(KINDS.values())
    assert len({kind.event for kind in kinds}) == len(kinds) == 7
