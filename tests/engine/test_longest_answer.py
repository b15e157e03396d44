"""An answer that is ended at the limit that nobody has asked for."""

from dataclasses import replace

import pytest
from stored_chats import SAID, SHORT, loaded, open_chat

from h2o_chat.base.config import SCREEN_TOKENS, Sampling
from h2o_chat.chat.conversation import remarks
from h2o_chat.events.events import Event, Note, Turn
from h2o_chat.models.load import Loaded

__all__ = ["loaded"]


@pytest.mark.parametrize(("most", "stopped", "notes"), [(24, False, 1), (23, False, 0), (24, True, 0)])
def test_it_is_said_how_to_allow_more(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, most: int, stopped: bool, notes: int
) -> None:
    monkeypatch.setattr(remarks, "SCREEN_TOKENS", 24)
    events = list(open_chat(loaded, None).send(SAID[0], replace(SHORT, max_tokens=most), lambda: stopped))
    (turn,) = [event for event in events if isinstance(event, Turn)]
    assert (turn.finish, turn.new_tokens) == (("stopped", 0) if stopped else ("length", most))
    said = [event for event in events if isinstance(event, Note)]
    assert [one.code for one in said] == ["answer-limit"] * notes
    assert all("after 24 tokens" in one.message and "/set max_tokens" in one.hint for one in said)


@pytest.mark.parametrize(("most", "ended"), [(SCREEN_TOKENS, True), (600, False)])
def test_an_answer_that_repeats_itself_is_ended_where_nobody_asked_for_more(
    loaded: Loaded, most: int, ended: bool
) -> None:
    """With a penalty below 1 every model says the same for ever."""
    chat = open_chat(loaded, None)
    events = list(chat.send(SAID[0], Sampling(max_tokens=most, repetition_penalty=0.1, ignore_eos=True)))
    (turn,) = [event for event in events if isinstance(event, Turn)]
    assert (turn.finish == "stopped") == ended == (turn.new_tokens < 600)
    assert ("answer-repeats" in [event.code for event in events if isinstance(event, Note)]) == ended
    assert chat.messages[-1].finish == turn.finish


def test_an_answer_that_a_person_ends_was_not_ended_for_its_repeating(loaded: Loaded) -> None:
    """With `/set max_tokens 600`: it was advised to set that."""
    sampling, events = Sampling(max_tokens=600, repetition_penalty=0.1, ignore_eos=True), list[Event]()
    for event in open_chat(loaded, None).send(SAID[0], sampling, lambda: len(events) > 580):
        events.append(event)
    assert [one.finish for one in events if isinstance(one, Turn)] == ["stopped"]
    assert not [one.code for one in events if isinstance(one, Note)]
