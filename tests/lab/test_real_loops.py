"""A real model that says one sentence to whatever is said to it, and no longer does."""

import os
from pathlib import Path

import opened_models
import pytest

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.engine.engine import Engine
from h2o_chat.lab.eval.stuck_eval import repeated

FOLDER = os.environ.get("H2O_CHAT_REAL_MODELS", "")
SAID = """\
My neighbour Otto keeps bees on the roof.
How are you doing today?
I want to talk about something.
Thanks for talking with me.
I left the spare key under a flowerpot.
I hope you like it!
I am so sorry that I failed.
I feel so ashamed.
Our train leaves at ten past seven.
I really hope so.
It is my fault.
I wish I could have done more.
My grandmother was a baker.
What is the capital of France?""".splitlines()


@pytest.mark.real_model
def test_a_conversation_with_a_small_model_lives() -> None:
    (file,) = Path(FOLDER).glob("smollm2*.gguf")
    settings = Settings(model=str(file), seed=0, events_every=0)
    loaded, found = opened_models.loaded(settings), []
    for cured in (False, True):
        chat = Chat(Engine(loaded, settings), settings)
        chat.breaks_loops = cured
        for text in SAID:
            list(chat.send(text, Sampling(max_tokens=24)))
        found.append([one.text for one in chat.messages if one.role == "assistant"])
    before, now = (sum(repeated(SAID, answers)) for answers in found)
    assert now < before / 2
    assert "Paris" in found[True][-1]
