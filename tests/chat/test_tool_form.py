"""Tools, calls and thoughts as models' templates write them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.chat.templates.tool_form import Call, Parts, Splitter, ToolForm, form_of
from h2o_chat.models.load_tokenizer import load_tokenizer

POCKET = Path(__file__).parents[2] / "assets/pocket"
TURNS = """{%- if tools %}<|system|>{% for one in tools %}{{ one | tojson }}{% endfor %}<|end|>{% endif %}
{%- for m in messages %}<|{{ 'user' if m.role == 'tool' else m.role }}|>
{%- if m.reasoning_content and loop.last %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{% if m.content %}{{ m.content }}{% endif %}
{%- for c in m.tool_calls or [] %}CALLS<|end|>{% endfor %}
{%- endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
JSON = '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
HERMES, LISTED = f"<tool_call>\n{JSON}\n</tool_call>", f"[TOOL_CALLS][{JSON}]"
LLAMA = '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}'


def template_of(jinja: str) -> Any:
    tokenizer = load_tokenizer(POCKET, 4096)
    tokenizer.chat_template = jinja
    return choose(tokenizer, "auto")


@pytest.mark.parametrize(
    ("written", "begins", "key"),
    [
        (HERMES, "<tool_call>\n", "arguments"),
        (LLAMA, "", "parameters"),
        (LISTED, "[TOOL_CALLS]", "arguments"),
    ],
)
def test_a_template_tells_how_its_model_calls(written: str, begins: str, key: str) -> None:
    form = form_of(template_of(TURNS.replace("CALLS", written)))
    assert (form.native, form.begins, form.arguments) == (True, begins, key)
    assert form.thinking.marks == ("<think>", "</think>")
    call = {"name": "f", key: {"x": [1, {"y": "}"}]}}
    text = f"{begins}{json.dumps([call] if written is LISTED else call)}{form.ends}"
    assert form.read(text, tools=True).calls == (Call("f", {"x": [1, {"y": "}"}]}),)


def test_a_template_without_tools_gets_the_documented_form() -> None:
    form = form_of(choose(load_tokenizer(POCKET, 4096), "auto"))
    assert form == ToolForm()
    assert '"name": "f"' in form.described([{"function": {"name": "f"}}])


def test_a_template_may_open_the_thought_itself() -> None:
    jinja = TURNS.replace("<|assistant|>{% endif", "<|assistant|><think>\n{% endif")
    form = form_of(template_of(jinja.replace("CALLS", HERMES)))
    assert form.thinking.opened_tokens
    assert form.read("I guess.\n</think>\n\nYes.", tools=False) == Parts("Yes.", (), "I guess.")
    assert form.read("I guess", tools=False) == Parts("", (), "I guess")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.just("</tool_call>"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
calls = st.lists(
    st.builds(Call, st.text(min_size=1, max_size=9), st.dictionaries(st.text(max_size=5), values)), max_size=3
)
words = (
    st.text(st.sampled_from("ab <{[`\n"), max_size=20).map(str.strip).filter(lambda text: "```" not in text)
)


@given(words, calls, st.data())
def test_what_is_written_is_read_back_and_streams(
    content: str, made: list[Call], data: st.DataObject
) -> None:
    form = ToolForm()
    parts = Parts(content, tuple(made))
    text = form.written(parts)
    found = form.read(text, tools=True)
    if made:
        assert found == parts
    splitter, streamed = Splitter(form, tools=True), ""
    while text:
        size = data.draw(st.integers(1, len(text)))
        streamed += "".join(new for _, new in splitter.add(text[:size]))
        text = text[size:]
    streamed += "".join(new for _, new in splitter.end(found))
    assert streamed.strip() == found.content.strip()


@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "<tool_call>\n{}\n</tool_call>"])
def test_doubled_braces_are_a_call(around: str) -> None:
    text = around.replace("{}", '{{"name": "f", "arguments": {"a": {}}}}')
    assert ToolForm().read(text, tools=True) == Parts("", (Call("f", {"a": {}}),))


def test_plain_text_is_left_alone() -> None:
    text = ' <tool_call>{"name": "f"} <think>'
    assert ToolForm().read(text, tools=False) == Parts(text)
    assert list(Splitter(ToolForm(), tools=False).add(text)) == [("content", text)]
