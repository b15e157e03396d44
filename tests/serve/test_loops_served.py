"""A loop is broken on the server as on the screen, from the history that the client sends."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opened_models import loaded
from serving import answered, begun

from h2o_chat.base.config import Settings
from h2o_chat.chat.templates.tool_form import Call, Parts
from h2o_chat.serve.service import Service

LOOP = "I'm doing great, thank you for asking, and I hope you are well too."
ASKED = ("I like tea.", "What is the moon?", "Play a song.", "Where is Rome?", "It rains.")


@pytest.fixture
async def service(shared_models: Path) -> AsyncIterator[Service]:
    settings = Settings(
        model=str(shared_models / "pilot-chat"), budget=200, threads=1, seed=0, events_every=0
    )
    with begun(loaded(settings), settings) as service:
        yield service


def history(answers: list[str]) -> list[tuple[str, str]]:
    pairs = zip(ASKED, answers, strict=False)
    return [one for text, answer in pairs for one in (("user", text), ("assistant", answer))]


async def test_an_answer_leaves_the_loop_and_it_is_said_once(service: Service) -> None:
    said = [*history([LOOP] * 4), ("user", "And now?")]
    free = await answered(service, said[:-4] + said[-1:])
    assert not free.notes
    first = await answered(service, said)
    assert [note.code for note in first.notes] == ["stuck"]
    again = history([first.turn.text] * 4)
    assert first.turn.text
    later = await answered(service, [*again, ("user", "And now?")])
    assert later.turn.text != first.turn.text
    fifth = await answered(service, [*history([LOOP] * 5), ("user", "And now?")])
    assert not fifth.notes, "it was said a message before"


async def test_calls_without_results_are_no_loop(service: Service) -> None:
    """A client that forces calls for their form sends no results of them."""
    call = service.form.written(Parts("", (Call("weather", {"city": "Rome", "days": "three or four"}),)))
    free = await answered(service, [*history([call] * 5), ("user", "And now?")])
    assert not free.notes


async def test_the_next_request_goes_on_from_the_memory_after_it(service: Service) -> None:
    said = [*history([LOOP] * 4), ("user", "And now?")]
    first = await answered(service, said)
    said += [("assistant", first.turn.text), ("user", "Good night.")]
    second = await answered(service, said)
    assert second.cached_tokens == first.turn.seen
