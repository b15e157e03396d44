"""How a model thinks before it answers, read off its chat template by rendering probes.

`<think>`, the channels of gpt-oss and their like are told apart here, by what the template says of them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from h2o_chat.base.config import THINKS
from h2o_chat.base.errors import H2OChatError

EFFORTS = ("low", "medium", "high")
_USER = {"role": "user", "content": "probe_user"}
_ANSWER = {"role": "assistant", "content": "probe_answer"}
_THOUGHT = dict.fromkeys(("reasoning_content", "reasoning", "thinking"), "probe_thought")


def switches(think: str) -> dict[str, Any]:
    """The variables by which templates are told how to think; none for `auto`."""
    if think == "auto":
        return {}
    on = think != "off"
    return {"enable_thinking": on, "thinking": on} | ({"reasoning_effort": think} if think in EFFORTS else {})


@dataclass(frozen=True)
class Thinking:
    """The thoughts of one template's model."""

    marks: tuple[str, str] = ("", "")
    """Stand before and after a thought; empty: the template knows none."""
    opened_tokens: int = 0
    """Tokens of the first mark, where the template itself opens the thought before the answer."""
    plain: str = ""
    """The mark before an answer without a thought, where there is one; `marks[1]` ends with it."""
    special: tuple[int, ...] = ()
    """Special tokens in these marks, which have to be shown in an answer's text."""
    drops: bool = False
    """The template leaves out the thoughts of answers before the user's last message."""
    choices: tuple[str, ...] = ()
    """The values of `Settings.think` that it knows: on and off, low, medium and high."""

    def divide(self, text: str, growing: bool = False) -> tuple[str | None, str]:
        """(the thought or None, the answer behind it); `growing`: nothing is told of what may be a mark."""
        (before, after), head = self.marks, text.lstrip()
        if not after:
            return None, text
        if not self.opened_tokens and not head.startswith(before):
            if self.plain and head.startswith(self.plain):
                return None, head.removeprefix(self.plain)
            begins = growing and (before.startswith(head) or self.plain.startswith(head))
            return None, "" if begins else text
        thought, closed, answer = head.removeprefix(before).partition(after)
        return thought.strip(), answer.lstrip("\n") if closed else ""

    def answered(self, text: str) -> str:
        """The answer without its thought; the whole text where the thought is not closed."""
        thought, answer = self.divide(text)
        return text if thought is not None and self.marks[1] not in text else answer

    def place(self, first: int, tokens: int) -> range:
        """Positions of a thought of so many tokens in an answer from `first` on, its first mark included."""
        return range(first - self.opened_tokens, first + tokens)

    def tokens(self, texts: Iterable[str]) -> int:
        """Number of the first tokens of an answer that are a thought and its marks; 0 if it was cut off."""
        told = list(texts)
        whole = "".join(told)
        thought, answer = self.divide(whole)
        if thought is None or (at := whole.find(self.marks[1])) < 0:
            return 0
        end, read = max(at + 1, len(whole) - len(answer) - len(self.plain)), 0
        for number, text in enumerate(told, 1):
            read += len(text)
            if read >= end:
                return number
        return 0


def thinking_of(template: Any) -> Thinking:
    """How the model of a `ModelTemplate` thinks."""
    try:
        asked = template.rendered([_USER])
        found = _opened(template, asked) or _written(template, asked) or _inline(template) or Thinking()
        drops = bool(found.marks[1]) and _drops(template, found.marks)
        return replace(found, drops=drops, choices=tuple(_choices(template)))
    except H2OChatError:  # it renders no such conversation
        return Thinking()


def _opened(template: Any, asked: str) -> Thinking | None:
    """The template itself opens the thought: `<think>` ends the prompt."""
    opened = re.search(r"(<(\w+)>|\[([A-Z_]+)\])\s*\Z", asked)
    if not opened or opened[1] in template.mark_texts():
        return None
    name = opened[2] or opened[3]
    closes = opened[1].replace(name, f"/{name}")
    if closes not in template.source:  # a mark of the assistant's turn is closed nowhere
        return None
    tokens = len(template.tokenized(asked)) - len(template.tokenized(asked[: opened.start()]))
    return Thinking((opened[1], closes), max(1, tokens))


def _written(template: Any, asked: str) -> Thinking | None:
    """The template writes a thought that stands beside an answer."""
    text = template.rendered([_USER, _ANSWER | _THOUGHT], opens=False).removeprefix(asked)
    found = re.search(r"(\S+)\s*probe_thought\s*(\S+)\s*probe_answer", text)
    if found is None:
        return None
    begins = re.split(r"(?=[<\[])", found[1])[-1]
    if not any(mark in begins + found[2] for mark in template.mark_texts()):
        return Thinking((begins, found[2]))
    bare = template.rendered([_USER, _ANSWER], opens=False)
    plain = bare.removeprefix(asked).partition("probe_answer")[0].strip() if bare.startswith(asked) else ""
    if not text.startswith(found[1]) or not found[2].endswith(plain):
        return None
    special = [number for mark, number in template.marks_in("").items() if mark in found[1] + found[2]]
    return Thinking((found[1], found[2]), plain=plain, special=tuple(special))


def _inline(template: Any) -> Thinking | None:
    """The template takes thoughts out of the text of earlier answers."""
    names = dict.fromkeys(re.findall(r"</(\w+)>|\[/([A-Z_]+)\]", template.source))
    for tag, capitals in names:
        marks = (f"<{tag}>", f"</{tag}>") if tag else (f"[{capitals}]", f"[/{capitals}]")
        if not {*marks} & {*template.mark_texts()} and _drops(template, marks):
            return Thinking(marks)
    return None


def _drops(template: Any, marks: tuple[str, str]) -> bool:
    """Whether an earlier answer is rendered without its thought, beside it or in its text."""
    inside = {"role": "assistant", "content": f"{marks[0]}\nprobe_thought\n{marks[1]}\n\nprobe_answer"}
    beside = _ANSWER | _THOUGHT
    if "probe_thought" in template.rendered([_USER, beside], opens=False):
        earlier = template.rendered([_USER, beside, _USER])
        if "probe_answer" in earlier and "probe_thought" not in earlier:
            return True
    try:
        earlier = template.rendered([_USER, inside, _USER])
    except H2OChatError:  # gpt-oss takes them beside an answer alone
        return False
    return "probe_answer" in earlier and "probe_thought" not in earlier


def _choices(template: Any) -> Iterator[str]:
    """The values of `THINKS` that change a prompt."""
    text = {think: template.thinking_as(think).rendered([_USER]) for think in THINKS if think != "auto"}
    if text["on"] != text["off"]:
        yield from ("on", "off")
    if text["low"] != text["high"]:
        yield from EFFORTS
