"""Chat templates as transformers renders them, but with limits: a hostile one is stopped."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from found_templates import byte_tokenizer
from psutil import Process, pid_exists
from transformers.utils import chat_template_utils

from h2o_chat.base.errors import ModelError
from h2o_chat.chat.templates.base_templates import BASE_TEMPLATES
from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.chat.templates.rendering import Renderer, TemplateFailed
from h2o_chat.chat.templates.template_process import environment

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
SAID = [
    {"role": "system", "content": "Be kind.\n"},
    {"role": "user", "content": "Grüß Gott, 世界 🦊 \ud83e <|im_end|> {{ 7 * 7 }}\r\n"},
    {"role": "assistant", "content": " <think>hm</think>\n<b>'yes'</b> "},
    {"role": "user", "content": "x"},
]
FEATURES = {
    "json": "{{ messages | tojson }} {{ messages | tojson(indent=2) }} {{ tools | tojson }}",
    "namespace": "{% set n = namespace(a=1, self=2) %}{% for m in messages %}{% set n.a = n.a + 1 %}"
    "{% endfor %}{{ n.a }}",
    "loops": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{{ loop.index }}"
    "{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m['content'] | trim }}{% endgeneration %}\n"
    "{% endfor %}",
    "blocks": "  {% if add_generation_prompt %}\n    a\n  {% endif %}\n{{- bos_token }}{{ eos_token }}\n\n",
    "macros": "{% macro say(m) %}[{{ m.content.split('</think>')[-1].lstrip('\\n') }}]{% endmacro %}"
    "{% for m in messages[::-1] %}{{ say(m) }}{% endfor %}",
    "dict": "{{ dict(a=1, b=[1, 2]).items() | list }} {{ dict.fromkeys('ab', 1) }}",
    "undefined": "{{ nothing }}{{ messages[0].nothing is defined }}{{ documents is none }}",
    "date": "{{ strftime_now('%Y-%m') }}",
}


@pytest.fixture(scope="module")
def renderer() -> Any:
    """One for all: where its process has ended, it begins another."""
    made = Renderer()
    yield made
    if made._process:
        made._process.kill()
        made._process.communicate()


def templates() -> dict[str, str]:
    """Real ones: those that are known by name, and that of the model that comes with the program."""
    named = {name: one.jinja for name, one in BASE_TEMPLATES.items()}
    return {**named, **FEATURES, "pocket": (POCKET / "chat_template.jinja").read_text()}


@pytest.mark.parametrize("name", templates())
def test_renders_as_transformers_does(name: str, renderer: Renderer) -> None:
    tokenizer = byte_tokenizer(templates()[name], "<s>", "</s>")
    for said in (SAID, SAID[1:2], SAID[1:]):
        theirs = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        values = {"messages": said, "tools": None, "documents": None, "add_generation_prompt": True}
        ours = renderer.render(tokenizer.chat_template, {**tokenizer.special_tokens_map, **values})
        assert ours == theirs


def test_knows_what_templates_find_in_transformers() -> None:
    ours, theirs = environment(), chat_template_utils._compile_jinja_template("x").environment
    assert set(ours.globals) == set(theirs.globals)
    assert set(ours.filters) == set(theirs.filters)
    assert set(ours.tests) == set(theirs.tests)
    assert {one.rpartition(".")[2] for one in theirs.extensions} == {
        "AssistantTracker",
        "LoopControlExtension",
    }
    for name in ("trim_blocks", "lstrip_blocks", "keep_trailing_newline", "autoescape", "undefined"):
        assert getattr(ours, name) == getattr(theirs, name), name


@pytest.mark.parametrize(
    ("template", "limit"),
    [
        (LOOPS, "1.5 s"),
        ("{{ 10 ** (10 ** 9) }}", "0.3 s"),
        ("{{ 'x' * 10 ** 10 }}", "1024 MiB"),
        (
            "{% set n = namespace(s='x') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
            "MiB|of computing",
        ),
        ("{{ 'x' * 3000000 }}", "1,048,576 characters"),
    ],
)
def test_a_limit_stops_whatever_a_template_does(
    template: str, limit: str, renderer: Renderer, request: pytest.FixtureRequest
) -> None:
    """One computes for the 1.5 s that the program lets it."""
    if limit == "0.3 s":
        renderer = request.getfixturevalue("hasty")
    began = time.monotonic()
    with pytest.raises(ModelError, match=limit) as caught:
        renderer.render(template, {"messages": [{"role": "user", "content": "Hi"}]})
    assert time.monotonic() - began < 60
    assert "--template plain" in caught.value.hint
    assert renderer.render("{{ messages[0].content }}!", {"messages": [{"content": "Hi"}]}) == "Hi!"


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('no') }}", "{{ 1 // 0 }}", "{% for %}", "{{ messages.__class__.mro() }}"]
)
def test_what_a_template_raises_is_told(template: str, renderer: Renderer) -> None:
    with pytest.raises(TemplateFailed):
        renderer.render(template, {"messages": []})


@pytest.mark.usefixtures("hasty")
def test_a_template_that_loops_is_the_models_fault_with_a_system_prompt_too() -> None:
    template = choose(byte_tokenizer(LOOPS, "<s>", "</s>"), "auto")
    with pytest.raises(ModelError, match="computing"):
        template.first("Be kind.", "Hi")


def test_a_large_text_passes(renderer: Renderer) -> None:
    text = "wörds " * 1_000_000
    assert renderer.render("[{{ messages[0].content }}]", {"messages": [{"content": text}]}) == f"[{text}]"


def test_a_process_that_is_killed_is_told_and_another_one_begins(renderer: Renderer) -> None:
    ask = {"messages": [{"content": "Hi"}]}
    renderer.render("x", ask)
    assert renderer._process is not None
    first = renderer._process.pid
    os.kill(first, signal.SIGSTOP)
    killer = threading.Timer(0.3, os.kill, (first, signal.SIGKILL))
    killer.start()
    with pytest.raises(ModelError, match="-9"):
        renderer.render("x", ask)
    assert renderer.render("y", ask) == "y"
    assert not pid_exists(first) or Process(first).status() == "zombie"
