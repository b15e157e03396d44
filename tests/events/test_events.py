"""One JSON object a line, and back."""

import json
from dataclasses import asdict

import pytest

from h2o_chat.events.events import (
    KINDS,
    CacheState,
    End,
    Error,
    Event,
    Gone,
    Heavy,
    Note,
    Prompt,
    ReadSoFar,
    Said,
    Session,
    Token,
    Turn,
    from_json,
    to_json,
)

HEAVY = Heavy(3, "dog", 0.5, 1.5, 0.1, "H")
SESSION = Session(
    *("m", None, "plain", "h2o", 64, 4, 32, 16, "chunked", "none", "float32", "float32", "cpu"),
    *("transformers", 1, 7, 2, 4, 256, {"python": "3"}),
)
EVENTS: list[Event] = [
    SESSION,
    Said(0, "user", 'hi\r\n\0\x85\u2028"\\'),
    Said(2, "user", "who?", recalled=[(0, "hi"), (-1, "ho")]),
    Said(1, "assistant", "ho", "interrupted", 0.5, pinned=True),
    ReadSoFar(2, 3, 4.0),
    Prompt(3, 0, 2, 1, 5.0, 1, ["a", "", "🦊"]),
    Token(1, "a", 2, 3.0),
    CacheState(
        *(9, 4, 100, 900, 0.1, {"S": 1}, [HEAVY], [(3, 0.5, 1.5)], [[0.5]], True, [(0, 3)], [(3, "a0")]),
        *([Gone(2, "cat", 0.5, 1.0)], 5, [(1, 2.0), (9, 0.5)]),
    ),
    Turn("hi", "eos", 1, 2, 3.0, 4.0, 5, 6, 7, 0.5, [(0, 0.25)]),
    Note("pinned", "It is pinned.", about=1),
    Error("window", "It is full.", "Begin anew."),
    End(1, 2, 3.0, None),
]


def test_every_event_comes_back_as_it_was() -> None:
    assert {type(event) for event in EVENTS} == set(KINDS.values())
    for event in EVENTS:
        line, copied = to_json(event), {"event": event.event} | asdict(event)
        assert line == json.dumps(copied, ensure_ascii=False)
        assert from_json(line) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.event)
def test_a_field_of_a_wrong_type_is_refused_by_its_name(event: Event) -> None:
    data = json.loads(to_json(event))
    mistakes: list[object] = [[{}], {"a": [{}]}, True, 1e999, 2**63]
    for name in data.keys() - {"event"}:
        for wrong in mistakes:
            if (name == "versions" and isinstance(wrong, dict)) or (
                name in ("whole", "pinned") and wrong is True
            ):
                continue
            with pytest.raises(ValueError, match=rf"{event.event}\.{name}|no number"):
                from_json(json.dumps(data | {name: wrong}))


def test_recalled_words_of_before_are_one_piece() -> None:
    line = to_json(Said(2, "user", "who?"))
    old = {"recalled": "hi", "recalled_from": 0, "source": {"index": -1, "words": ""}}
    assert from_json(json.dumps(json.loads(line) | old)) == Said(2, "user", "who?", recalled=[(0, "hi")])
    nothing = {"recalled": "", "recalled_from": -1}
    assert from_json(json.dumps(json.loads(line) | nothing)) == Said(2, "user", "who?")
    with pytest.raises(ValueError, match=r"said\.recalled"):
        from_json(json.dumps(json.loads(line) | {"recalled": "hi", "recalled_from": "0"}))


def test_what_is_no_part_of_an_event_is_not_written() -> None:
    with pytest.raises(TypeError, match="object has no place in an event"):
        to_json(Note("code", object(), ""))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"event": "nonsense"}', "nonsense"),
        ('{"event": "token", "text": "a"}', "token has no id, position, ms$"),
        ('{"event": "cache", "heaviest": [{}]}', "cache"),
        ('{"event": "cache", "heaviest": 5}', "cache"),
        ('{"event": "turn", "hold": [1]}', "turn"),
        ('{"event": "cache", "kinds": {"\\u001b": 1.5}}', r"kinds\['\\x1b'\] is 1.5"),
    ],
)
def test_bad_lines_are_refused_with_what_is_wrong(line: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_json(line)
