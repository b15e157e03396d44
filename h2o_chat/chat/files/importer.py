"""Conversations from files: our own JSON, and messages in OpenAI's format.

A file is a stranger's: all of it is checked before anything is stored, everything has a limit, and token ids
and positions are not taken over. They would let a file say what no text can (the marks between turns), so an
imported conversation is read anew when it is resumed.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args

from h2o_chat.base import precedence
from h2o_chat.base.errors import UsageError
from h2o_chat.chat.conversation.message import LONGEST_CHARACTERS
from h2o_chat.chat.files.export import FORMAT, SCHEMA
from h2o_chat.events.events import Finish
from h2o_chat.events.typed import seen
from h2o_chat.store import Conversation, StoredMessage, clean, title_of

MAX_BYTES = 64 << 20
MAX_MESSAGES = 100_000
"""Limit for one file."""
MAX_CHARACTERS = LONGEST_CHARACTERS
MAX_NAME_CHARACTERS = 1_000

_FINISHES = get_args(Finish)
_ROLES = ("system", "user", "assistant", "tool")
_YEAR_9999 = 253_402_300_799.0
_KINDS: dict[type[Any], str] = {str: "a text", dict: "an object", list: "a list", bool: "true or false"}


def read(path: Path, notes: list[str] | None = None) -> list[Conversation]:
    """The conversations of a file.

    Args:
        notes: gets notes about what was left out.

    Raises:
        UsageError: it cannot be read, or something in it is wrong; says where.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Give a file.") from error
    return parse(raw, str(path), notes)


def parse(raw: bytes, name: str, notes: list[str] | None = None) -> list[Conversation]:
    """The conversations in the bytes of a file; none without messages.

    Args:
        name: of the file, for errors.
        notes: gets notes about what was left out.

    Raises:
        UsageError: something in it is wrong; says where and what.
    """
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{name} is larger than {MAX_BYTES >> 20} MiB.", "Import it in parts.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text ({error.reason} at byte {error.start}).") from error
    if not text.strip():
        raise UsageError(f"{name} is empty.", _HINT)
    left_out: list[_Part] = []
    found = list(_conversations(text, name, left_out))
    if left_out and notes is not None:
        notes.append(f"Messages left out, of tools or without a text: {len(left_out):,}.")
    if sum(len(conversation.messages) for conversation in found) > MAX_MESSAGES:
        raise UsageError(f"{name} has more than {MAX_MESSAGES:,} messages.", "Import it in parts.")
    return found


_HINT = (
    "An export of this program (sessions export --format json), or messages like"
    ' {"messages": [{"role": "user", "content": "..."}, ...]}, also as JSON lines.'
)


@dataclass(frozen=True)
class _Part:
    """A value in a file, and the place where it stands."""

    value: Any
    file: str
    """Name of the file, and the line where it has several."""
    path: str = ""

    @property
    def where(self) -> str:
        return f"{self.file}: {self.path}" if self.path else self.file

    def wrong(self, what: str, hint: str = "") -> NoReturn:
        """Raises:
        UsageError: always; it names the place.
        """
        raise UsageError(f"{self.where} {what}.", hint)

    def has(self, key: str) -> bool:
        """Whether it is an object with this key, and not null there."""
        return isinstance(self.value, dict) and self.value.get(key) is not None

    def at(self, key: str) -> "_Part":
        """A value of an object.

        Raises:
            UsageError: it is none, or has no such key.
        """
        if key not in self.of(dict):
            self.wrong(f"has no {key}", _HINT)
        return _Part(self.value[key], self.file, f"{self.path}.{key}" if self.path else key)

    def each(self) -> "Iterator[_Part]":
        """The parts of a list.

        Raises:
            UsageError: it is none.
        """
        for index, value in enumerate(self.of(list)):
            yield _Part(value, self.file, f"{self.path}[{index}]")

    def of(self, kind: type[Any]) -> Any:
        """The value.

        Raises:
            UsageError: it is not of this kind.
        """
        if not isinstance(self.value, kind):
            self.wrong(f"is {seen(self.value)} and not {_KINDS[kind]}", _HINT)
        return self.value

    def text(self, limit: int) -> str:
        """A text, with what cannot be stored replaced.

        Raises:
            UsageError: it is none, or too long.
        """
        text: str = self.of(str)
        if len(text) > limit:
            self.wrong(f"has {len(text):,} characters: more than {limit:,}")
        return clean(text)

    def number(self, low: float, high: float) -> float:
        """A finite number.

        Raises:
            UsageError: it is none, or outside of `low` to `high`.
        """
        number = self.value
        if type(number) not in (int, float) or not low <= number <= high:  # nor is NaN
            self.wrong(f"is {seen(number)} and not a number from {low:.0f} to {high:.0f}")
        return float(number)

    def one_of(self, known: tuple[str, ...]) -> str:
        """One of these words.

        Raises:
            UsageError: it is another.
        """
        if self.value not in known:
            self.wrong(f"is {seen(self.value)}", f"One of: {', '.join(known)}.")
        return str(self.value)


def _conversations(text: str, name: str, left_out: list[_Part]) -> Iterator[Conversation]:
    try:
        whole = _Part(json.loads(text), name)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data" or error.lineno == 1:
            raise _no_json(name, error.lineno, error) from error
    except (ValueError, RecursionError) as error:
        raise _no_json(name, None, error) from error
    else:
        if whole.has("role"):
            yield _of_openai([whole], "", whole, left_out)
        else:
            yield _conversation(whole, left_out)
        return
    lines = list(_lines(text, name))
    if lines[0].has("role"):
        yield _of_openai(lines, "", lines[0], left_out)
        return
    for line in lines:
        yield _conversation(line, left_out)


def _lines(text: str, name: str) -> Iterator[_Part]:
    """The values of JSON lines; empty lines do not count."""
    count = 0
    for number, line in enumerate(text.split("\n"), 1):  # splitlines() would also cut inside of texts
        if not line.strip():
            continue
        count += 1
        if count > MAX_MESSAGES:
            raise UsageError(f"{name} has more than {MAX_MESSAGES:,} lines.", "Import it in parts.")
        try:
            yield _Part(json.loads(line), f"{name} line {number}")
        except (ValueError, RecursionError) as error:
            raise _no_json(name, number, error) from error


def _no_json(name: str, line: int | None, error: Exception) -> UsageError:
    if isinstance(error, RecursionError):
        what = "is nested too deeply"
    elif isinstance(error, json.JSONDecodeError):
        what = f"is not JSON: {error.msg} at column {error.colno}"
    else:
        what = "has a number that is too long"
    return UsageError(f"{name}{'' if line is None else f' line {line}'} {what}.", _HINT)


def _conversation(part: _Part, left_out: list[_Part]) -> Conversation:
    if isinstance(part.value, list):
        return _of_openai(list(part.each()), "", part, left_out)
    if part.has("format") or part.has("schema"):
        return _ours(part)
    model = part.at("model").text(MAX_NAME_CHARACTERS) if part.has("model") else ""
    return _of_openai(list(part.at("messages").each()), model, part.at("messages"), left_out)


def _of_openai(parts: list[_Part], model: str, whole: _Part, left_out: list[_Part]) -> Conversation:
    """Messages in a row; `whole` is where they stand. Messages that nobody said go to `left_out`."""
    said: list[_Part] = []
    for part in _limited(parts, whole):
        (left_out if _is_of_a_tool(part) else said).append(part)
    now = time.time()
    messages = [
        StoredMessage(
            id=index,
            parent=index - 1 if index else None,
            role=_role(part.at("role"), first=index == 0),
            text=_content(part.at("content")),
            finish=None,
            first=-1,
            last=-1,
            ids=(),
            created=now,
        )
        for index, part in enumerate(_limited(said, whole))
    ]
    title = next((title_of(one.text) for one in messages if one.role == "user"), "")
    return Conversation("", title, model, {}, now, now, messages[-1].id, messages)


def _is_of_a_tool(part: _Part) -> bool:
    """Whether a message is the result of a tool, or an answer without a word: the call of one."""
    role = part.value.get("role") if isinstance(part.value, dict) else None
    if role in ("tool", "function"):
        return True
    wordless = role == "assistant" and not part.value.get("content")
    calls = part.has("tool_calls") or part.has("function_call")
    return wordless and (calls or part.value.get("content", "") is None)


def _limited(parts: list[_Part], whole: _Part) -> list[_Part]:
    if not parts:
        whole.wrong("has no messages", _HINT)
    if len(parts) > MAX_MESSAGES:
        parts[MAX_MESSAGES].wrong(f"is one message more than {MAX_MESSAGES:,}", "Import it in parts.")
    return parts


def _role(part: _Part, first: bool) -> str:
    role = "system" if part.value == "developer" else part.one_of(_ROLES)
    if role == "system" and not first:
        part.wrong(f"is {seen(part.value)}, which only the first message can be")
    return role


def _content(part: _Part) -> str:
    if isinstance(part.value, str):
        return part.text(MAX_CHARACTERS)
    if not isinstance(part.value, list):
        part.wrong(f"is {seen(part.value)} and not a text", "Only text can be imported.")
    texts = []
    for piece in part.each():
        if piece.at("type").value not in ("text", "input_text", "output_text"):
            piece.at("type").wrong(f"is {seen(piece.value['type'])}", "Only text can be imported.")
        texts.append(piece.at("text").text(MAX_CHARACTERS))
    if sum(map(len, texts)) > MAX_CHARACTERS:
        part.wrong(f"has more than {MAX_CHARACTERS:,} characters")
    return "".join(texts)


def _ours(part: _Part) -> Conversation:
    """A conversation written by `export.to_json`. Unknown keys are ignored."""
    if part.at("format").value != FORMAT:
        part.at("format").wrong(f"is {seen(part.value['format'])} and not {FORMAT!r}", _HINT)
    if part.at("schema").value != SCHEMA:
        part.at("schema").wrong(
            f"is {seen(part.value['schema'])}; this h2o-chat reads {SCHEMA}", "Update h2o-chat."
        )
    messages: dict[int | None, StoredMessage | None] = {None: None}
    for one in _limited(list(part.at("messages").each()), part):
        message = _message(one, messages)
        messages[message.id] = message
    kept = [message for message in messages.values() if message is not None]
    leaf = part.at("leaf")
    if leaf.value is not None and (type(leaf.value) is not int or leaf.value not in messages):
        leaf.wrong(f"is {seen(leaf.value)}, which is none of the messages")
    created = part.at("created").number(0, _YEAR_9999)
    return Conversation(
        id="",
        title=part.at("title").text(MAX_NAME_CHARACTERS),
        model=part.at("model").text(MAX_NAME_CHARACTERS),
        settings=_settings(part.at("settings")),
        created=created,
        updated=created,
        leaf=leaf.value,
        messages=kept,
    )


def _message(part: _Part, before: dict[int | None, StoredMessage | None]) -> StoredMessage:
    number, parent = part.at("id"), part.at("parent")
    if type(number.value) is not int or number.value in before:
        number.wrong(f"is {seen(number.value)}, which is no number or was there before")
    if parent.value is not None and (type(parent.value) is not int or parent.value not in before):
        parent.wrong(f"is {seen(parent.value)}, which is none of the messages before it")
    role = _role(part.at("role"), first=parent.value is None)
    return StoredMessage(
        id=number.value,
        parent=parent.value,
        role=role,
        text=part.at("text").text(MAX_CHARACTERS),
        finish=part.at("finish").one_of(_FINISHES) if part.has("finish") and role == "assistant" else None,
        first=-1,
        last=-1,
        ids=(),
        created=part.at("created").number(0, _YEAR_9999),
        pinned=part.has("pinned") and part.at("pinned").of(bool),
    )


def _settings(part: _Part) -> dict[str, Any]:
    """The settings that this version knows."""
    return {
        name: _cleaned(precedence.check(name, value, f"{part.where}.{name}"))
        for name, value in part.of(dict).items()
        if name in precedence.NAMES and value is not None
    }


def _cleaned(value: Any) -> Any:
    """A setting without lone surrogates, which no tokeniser takes."""
    if isinstance(value, tuple):
        return tuple(map(clean, value))
    return clean(value) if isinstance(value, str) else value
