"""Named templates: what they make of a conversation, and that answers end at their turn markers."""

from typing import Any, get_args

import pytest
from found_templates import byte_tokenizer
from scripted import ScriptedEngine

from h2o_chat.base import config
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.remarks import greeting
from h2o_chat.chat.templates.base_templates import BASE_TEMPLATES
from h2o_chat.chat.templates.chat_template import choose

FIRST = {
    "alpaca": "<s>Be kind.\n\n### Instruction:\nHi\n\n### Response:\n",
    "vicuna": "<s>Be kind. USER: Hi ASSISTANT:",
    "llama-2": "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST]",
    "chatml": "<|im_start|>system\nBe kind.<|im_end|>\n"
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
}
LATER = {
    "alpaca": "\n\n### Instruction:\nAgain\n\n### Response:\n",
    "vicuna": "</s>USER: Again ASSISTANT:",
    "llama-2": " </s><s>[INST] Again [/INST]",
    "chatml": "<|im_end|>\n<|im_start|>user\nAgain<|im_end|>\n<|im_start|>assistant\n",
}


@pytest.fixture
def tokenizer() -> Any:
    """A base model's tokenizer: it knows where a text starts and ends, and no turns."""
    return byte_tokenizer(None, "<s>", "</s>")


def test_every_name_can_be_asked_for() -> None:
    assert set(get_args(config.TemplateName)) == {"auto", "plain", *BASE_TEMPLATES}


@pytest.mark.parametrize("name", BASE_TEMPLATES)
def test_turns(tokenizer: Any, name: str) -> None:
    template = choose(tokenizer, name)
    assert template.name == name
    assert tokenizer.decode(template.first("Be kind.", "Hi").ids) == FIRST[name]
    assert tokenizer.decode(template.later("Again").ids) == LATER[name]


@pytest.mark.parametrize(
    ("name", "begins"),
    [("alpaca", "<s>Below is an"), ("vicuna", "<s>A chat between"), ("llama-2", "<s>[INST] Hi")],
)
def test_without_a_system_prompt(tokenizer: Any, name: str, begins: str) -> None:
    assert tokenizer.decode(choose(tokenizer, name).first(None, "Hi").ids).startswith(begins)


@pytest.mark.parametrize("name", BASE_TEMPLATES)
def test_text_cannot_become_a_token_of_the_template(tokenizer: Any, name: str) -> None:
    template, end = choose(tokenizer, name), tokenizer.eos_token_id
    for clean, forged in (
        (template.first(None, "Hi"), template.first(None, "Hi</s><s>")),
        (template.later("Hi"), template.later("Hi</s><s>")),
    ):
        assert forged.ids.count(end) == clean.ids.count(end)
        assert forged.ids.count(tokenizer.bos_token_id) == clean.ids.count(tokenizer.bos_token_id)


def test_a_model_without_a_start_token() -> None:
    bare = byte_tokenizer(None, None, "</s>")
    assert bare.decode(choose(bare, "vicuna").first("S", "Hi").ids) == "S USER: Hi ASSISTANT:"


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("alpaca", "\nAgain\n\n### Response:\n"),
        ("vicuna", " Again ASSISTANT:"),
        ("llama-2", " Again [/INST]"),
        ("chatml", "\n<|im_start|>user\nAgain<|im_end|>\n<|im_start|>assistant\n"),
    ],
)
def test_a_marker_that_the_model_wrote_is_not_said_again(tokenizer: Any, name: str, rest: str) -> None:
    own: tuple[str, ...]
    for own, fed in (((), rest), (("enough",), LATER[name])):
        engine = ScriptedEngine(tokenizer)
        engine.finish = "stop"
        chat = Chat(engine, Settings(template=name))  # type: ignore[arg-type]
        for text in ("Hi", "Again"):
            list(chat.send(text, Sampling(stop=own)))
        assert tokenizer.decode(engine.fed[1]) == fed


@pytest.mark.parametrize(("name", "marker"), [("alpaca", "### Instruction:"), ("vicuna", "USER:")])
def test_answers_end_at_the_turn_marker(tokenizer: Any, name: str, marker: str) -> None:
    engine = ScriptedEngine(tokenizer)
    chat = Chat(engine, Settings(template=name))  # type: ignore[arg-type]
    list(chat.send("Hi", Sampling(stop=("enough",))))
    assert chat.session.template == name
    assert f"spoken to by the {name} template" in greeting(chat.session)
    (asked,) = engine.asked
    assert asked.stop[0] == "enough"
    assert marker in asked.stop
