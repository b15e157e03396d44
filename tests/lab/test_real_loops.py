"""A real model that says one sentence to whatever is said to it, and no longer does."""

import os
from pathlib import Path

import opened_models
import pytest

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.lab import stuck
from h2o_chat.lab.contest import runs_of

FOLDER = os.environ.get("H2O_CHAT_REAL_MODELS", "")
SAID = (
    *(
        "My neighbour Otto keeps bees on the roof.",
        "How are you doing today?",
        "I want to talk about something.",
    ),
    *("Thanks for talking with me.", "I left the spare key under a flowerpot.", "I hope you like it!"),
    *("I am so sorry that I failed.", "I feel so ashamed.", "Our train leaves at ten past seven."),
    *(
        "I really hope so.",
        "It is my fault.",
        "I wish I could have done more.",
        "My grandmother was a baker.",
    ),
    *(
        "I feel guilty.",
        "I will try to let it go.",
        "Have you seen my money?",
        "I play the oboe.",
        "Hey dad.",
    ),
    *(
        "I think about joining the army.",
        "I am talking to you!",
        "My son hates gym.",
        "You do not look at me!",
    ),
)


@pytest.mark.skipif(not FOLDER, reason="H2O_CHAT_REAL_MODELS names no folder with smollm2*.gguf")
def test_a_conversation_with_a_small_model_lives() -> None:
    (file,) = Path(FOLDER).glob("smollm2*.gguf")
    loaded = opened_models.loaded(Settings(model=str(file)))
    runs = runs_of(["h2o"], [512])[1:]
    found = {
        cured: stuck.measure(loaded, SAID, runs, Sampling(max_tokens=32), [0], cured).conversations[0]
        for cured in (False, True)
    }
    said = range(len(SAID))
    before, now = (sum(found[cured].repeated[at] for at in said) for cured in (False, True))
    assert now < before / 2
    assert found[True].notes.count("stuck") >= 1
    assert found[True].still_known >= 0.7 * sum(found[True].known)
