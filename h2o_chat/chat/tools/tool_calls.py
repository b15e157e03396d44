"""The calls in a model's answer: who may make them, and what the model reads of their results."""

import json
from collections.abc import Generator, Iterator, Sequence

from h2o_chat.base.progress import ShouldStop
from h2o_chat.chat.templates.chat_template import ModelTemplate, Template, TurnTokens
from h2o_chat.chat.templates.tool_form import Call, form_of
from h2o_chat.chat.tools.mcp_servers import McpServers
from h2o_chat.events.events import Note

CALLS = 8
RESULT_CHARACTERS = 16_384
"""Most of a result that the model reads, some 4,000 tokens."""
SHOWN_CHARACTERS = 2_000
"""Most of a call's arguments that a person is shown."""


class ToolCalls:
    """The tools of one conversation; the servers were started."""

    def __init__(self, servers: McpServers, template: Template) -> None:
        self._servers, self._template = servers, template
        self.form = form_of(template)
        marks = template.mark_texts() if isinstance(template, ModelTemplate) else []
        self.tools = [
            # The template writes tools as they are: one with such a mark could speak for the user.
            one
            for one in servers.tools
            if not any(mark in json.dumps(one, ensure_ascii=False) for mark in marks)
        ]
        self.names = {one["function"]["name"] for one in self.tools}

    def notes(self) -> Iterator[Note]:
        """Notes about servers and tools that are not there."""
        yield from self._servers.notes
        for one in self._servers.tools:
            if (name := one["function"]["name"]) not in self.names:
                yield Note("mcp", f"{name} is left out: its description has special tokens of the model.")

    def system(self, text: str | None) -> str | None:
        """The system prompt of a new conversation, with all about tools that the template does not write."""
        if not self.tools:
            return text
        text = text or "You are a helpful assistant that can call tools."
        return "\n\n".join(filter(None, (text, self.form.described(self.tools))))

    def first(self, system: str | None, text: str) -> TurnTokens:
        return self._template.first(system, text, self.tools if self.form.native else ())

    def results(self, text: str, turn_marker_fed: bool) -> TurnTokens:
        """The tokens of a message with results; `turn_marker_fed` as for `Template.later`."""
        return self.form.fed([text], "", self._template, turn_marker_fed)

    def calls_in(self, answer: str) -> tuple[Call, ...]:
        return self.form.read(answer, bool(self.tools)).calls

    def called(self, calls: Sequence[Call], cancel: ShouldStop) -> Generator[Note, None, str]:
        """Makes calls, with a note about each; returns the message with their results."""
        told = list[str]()
        for call in calls[:CALLS]:
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            yield Note("tool", f"The model calls {call.name} {cut(arguments, SHOWN_CHARACTERS)}")
            if call.name not in self.names:
                text = f"There is no tool of this name, only {', '.join(sorted(self.names))}."
            elif self._may(call, cancel):
                text = self._servers.call(call.name, call.arguments, cancel)
            else:
                text = "The user does not allow this call."
                hint = f"run makes calls with --allow-tools, or --allow-tool {call.name}."
                yield Note("tool-refused", f"{call.name} was not called.", hint)
            told.append(f"{call.name} (untrusted):\n{cut(text, RESULT_CHARACTERS)}")
        if len(calls) > CALLS:
            told.append(f"{len(calls) - CALLS} more calls were not made: {CALLS} at once are the most.")
        return "\n\n".join(told)

    def _may(self, call: Call, cancel: ShouldStop) -> bool:
        if call.name in self._servers.allowed:
            return True
        said = self._servers.ask(call, cancel)
        if said == "always":
            self._servers.allowed.add(call.name)
        return said != "no"


def cut(text: str, most: int) -> str:
    """The text, or its beginning and how much is missing."""
    return text if len(text) <= most else f"{text[:most]}\n[{len(text) - most:,} more characters were cut]"
