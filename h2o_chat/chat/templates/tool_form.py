"""How a model writes tools and calls, read off its own chat template by rendering a probe.

A template that knows no tools gets them in the system message, in the form of Hermes and Qwen:

    <tools>                                     one JSON object a line
    <tool_call>                                 what the model writes to call one
    {"name": NAME, "arguments": {...}}
    </tool_call>
    <tool_response> ... </tool_response>        the result, in a user's message
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from h2o_chat.base.errors import H2OChatError
from h2o_chat.chat.templates.chat_template import ModelTemplate, Template, TurnTokens
from h2o_chat.chat.templates.thinking import Thinking

RESULTS, THEN = "\x1e", "\x1f"
"""They stand between the results of calls made at the same time, and before what is said behind them."""
_FENCED = re.compile(r"\s*(?:```\w*)?\s*([\[{].*[\]}])\s*(?:```)?\s*", re.DOTALL)
"""An answer that is JSON alone, perhaps in a code block: small models leave the marks of a call out."""
_PROBE = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "probe_description",
        "parameters": {"type": "object", "properties": {"probe_key": {"type": "string"}}, "required": []},
    },
}
_ARGUMENTS = {"probe_key": "probe_value"}
_CALL = {"id": "probe1234", "type": "function", "function": {"name": "probe_tool", "arguments": _ARGUMENTS}}
_DESCRIBED = """# Tools

You may call one or more of these functions. Their signatures, within <tools></tools>:
<tools>
{tools}
</tools>

To call one, write its name and its arguments as JSON within <tool_call></tool_call>, and nothing behind it:
<tool_call>
{{"name": "NAME", "arguments": {{...}}}}
</tool_call>"""


class Call(NamedTuple):
    name: str
    arguments: dict[str, Any]


class Parts(NamedTuple):
    content: str
    calls: tuple[Call, ...] = ()
    thought: str = ""


@dataclass(frozen=True)
class ToolForm:
    """The marks of a model's calls, and how it thinks."""

    native: bool = False
    """The template itself renders tools and results."""
    begins: str = "<tool_call>\n"
    """Stands before a call's JSON; empty: the whole answer is the JSON."""
    ends: str = "\n</tool_call>"
    arguments: str = "arguments"
    """The key of a call's arguments."""
    thinking: Thinking = field(default_factory=Thinking)

    def described(self, tools: Sequence[Any]) -> str:
        """The text about tools for the system message; empty where the template renders them."""
        if self.native:
            return ""
        functions = (json.dumps(one["function"], ensure_ascii=False) for one in tools)
        return _DESCRIBED.format(tools="\n".join(functions))

    def fed(self, results: Sequence[str], then: str, template: Template, turn_marker_fed: bool) -> TurnTokens:
        """The tokens of a turn that gives results; see `Template.results`."""
        if self.native:
            return template.results(results, then, turn_marker_fed)
        responses = (f"<tool_response>\n{one}\n</tool_response>" for one in results)
        return template.later("\n".join(filter(None, (*responses, then))), turn_marker_fed)

    def written(self, parts: Parts) -> str:
        """An earlier answer as the model would have written it, without its thoughts."""
        if not parts.calls:
            return parts.content
        made = ({"name": one.name, self.arguments: one.arguments} for one in parts.calls)
        calls = (f"{self.begins}{json.dumps(one, ensure_ascii=False)}{self.ends}" for one in made)
        return "\n".join(filter(None, (parts.content.strip(), *calls)))

    def read(self, text: str, tools: bool) -> Parts:
        """The parts of an answer; what is no complete call stays content, without `tools` all of it."""
        thought, content = self.thinking.divide(text)
        thought = thought or ""
        if not tools:
            return Parts(content, (), thought)
        mark, end = self.begins.strip(), self.ends.strip()
        rest, calls, at = list[str](), list[Call](), 0
        while (found := content.find(mark, at) if mark else _json_begins(content, at)) >= 0:
            made, after = self._call_at(content, found + len(mark))
            if made is None:
                rest.append(content[at : found + max(1, len(mark))])
                at = found + max(1, len(mark))
                continue
            rest.append(content[at:found])
            calls += made
            at = _behind_blanks(content, after)
            at += len(end) if content.startswith(end, at) else 0
        said = "".join([*rest, content[at:]])
        if not calls and (bare := _FENCED.fullmatch(content)):
            made, after = self._call_at(bare[1], 0)
            if made is not None and not bare[1][after:].strip():
                return Parts("", tuple(made), thought)
        return Parts(said.strip() if calls else content, tuple(calls), thought)

    def _call_at(self, text: str, at: int) -> tuple[list[Call] | None, int]:
        """The calls that stand there as JSON, and where it ends; None: there is none."""
        at = _behind_blanks(text, at)
        doubled = text.startswith("{{", at)  # as the templates of some models show a call
        try:
            found, end = json.JSONDecoder().raw_decode(text, at + doubled)
        except (ValueError, RecursionError):
            return None, at
        made = []
        for one in found if isinstance(found, list) else [found]:
            match one:
                case {"name": str(name), self.arguments: dict(arguments)}:
                    made.append(Call(name, arguments))
                case _:
                    return None, at
        return made or None, end + (doubled and text.startswith("}", end))


def _json_begins(text: str, at: int) -> int:
    """Where an answer that is JSON alone begins; -1 where it is none, or `at` is behind its beginning."""
    begins = _behind_blanks(text, 0)
    return begins if at == 0 and text.startswith(("{", "["), begins) else -1


def _behind_blanks(text: str, at: int) -> int:
    return at + len(text[at:]) - len(text[at:].lstrip())


class Splitter:
    """Splits a growing answer into thought and content that may be sent; calls wait for its end."""

    def __init__(self, form: ToolForm, tools: bool) -> None:
        self._form, self._tools = form, tools
        self._text, self.sent = "", {"content": 0, "thought": 0}

    def add(self, text: str) -> Iterator[tuple[str, str]]:
        """("content" or "thought", text) that has become certain."""
        if not self._tools and not self._form.thinking.marks[1]:
            yield from [("content", text)] if text else []
            self.sent["content"] += len(text)
            return
        self._text += text
        if self._undecided():
            return
        parts = self._form.read(self._text, self._tools)
        held = len(_half_a_mark(self._text, self._marks()))
        for kind, whole in (("thought", parts.thought), ("content", parts.content)):
            yield from self._new(kind, whole[: len(whole) - held] if self._text.endswith(whole) else whole)

    def end(self, parts: Parts) -> Iterator[tuple[str, str]]:
        """Yields the parts that were held back."""
        yield from self._new("thought", parts.thought)
        yield from self._new("content", parts.content)

    def _new(self, kind: str, whole: str) -> Iterator[tuple[str, str]]:
        if new := whole[self.sent[kind] :]:
            self.sent[kind] += len(new)
            yield kind, new

    def _marks(self) -> list[str]:
        calls = [self._form.begins.strip()] if self._tools else []
        return [mark for mark in (*self._form.thinking.marks, *calls) if mark]

    def _undecided(self) -> bool:
        """Whether a call may have begun, or the mark of a thought."""
        if self._form.thinking.divide(self._text, growing=True) == (None, ""):
            return True
        if not self._tools:
            return False
        mark, begun = self._form.begins.strip(), self._text.lstrip()
        return bool(mark and mark in self._text) or begun[:1] in ("{", "[") or "```".startswith(begun[:3])


def _half_a_mark(text: str, marks: Sequence[str]) -> str:
    """The longest end of a text with which a mark begins."""
    longest = max(map(len, marks), default=1)
    ends = (text[at:] for at in range(max(0, len(text) - longest + 1), len(text)))
    return next((end for end in ends if any(mark.startswith(end) for mark in marks)), "")


def form_of(template: Template) -> ToolForm:
    """The form of a model's template; Hermes' where it renders no tools."""
    if not isinstance(template, ModelTemplate):
        return ToolForm()
    user = {"role": "user", "content": "probe_user"}
    try:
        described = template.rendered([user], [_PROBE])
        asked = template.rendered([user], [_PROBE], opens=False)
        answer = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
        called = template.rendered([user, answer], [_PROBE], opens=False)
        plain = {"role": "assistant", "content": "probe_answer"}
        result = template.rendered([user, plain, {"role": "tool", "content": "probe_result"}])
    except H2OChatError:
        return ToolForm(thinking=template.thinking)
    opening = described.removeprefix(asked)
    made = _written_call(called.removeprefix(asked).removeprefix(opening), template.mark_texts())
    if made is None or "probe_description" not in described or "probe_result" not in result:
        return ToolForm(thinking=template.thinking)
    return ToolForm(True, *made, template.thinking)


def _written_call(text: str, marks: Sequence[str]) -> tuple[str, str, str] | None:
    """The texts before and after the JSON of the probe's call, and the key of its arguments."""
    for found in re.finditer(r"[\[{]", text):
        try:
            call, end = json.JSONDecoder().raw_decode(text, found.start())
        except (ValueError, RecursionError):
            continue
        call = call[0] if isinstance(call, list) and call else call
        if not isinstance(call, dict) or call.get("name") != "probe_tool":
            continue
        keys = [key for key, value in call.items() if value == _ARGUMENTS]
        special = "|".join(map(re.escape, marks)) or "(?!)"
        after = re.split(special, text[end:])[0].rstrip()
        return (re.sub(special, "", text[: found.start()]).lstrip(), after, keys[0]) if keys else None
    return None
