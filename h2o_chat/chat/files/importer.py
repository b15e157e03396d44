"""Conversations from files: our own JSON, and messages in OpenAI's format.

A file is a stranger's: all of it is checked before anything is stored, everything has a limit, and token ids
and positions are not taken over. They would let a file say what no text can (the marks between turns), so an
imported conversation is read anew when it is resumed.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from h2o_chat.base import precedence
from h2o_chat.base.errors import UsageError, why_no_json
from h2o_chat.chat.conversation.message import LONGEST_CHARACTERS
from h2o_chat.chat.files.export import FORMAT, SCHEMA
from h2o_chat.events import typed
from h2o_chat.events.events import Finish, Role
from h2o_chat.events.typed import seen
from h2o_chat.store import Conversation, StoredMessage, clean, title_of

MAX_BYTES = 64 << 20
MAX_MESSAGES = 100_000
MAX_CHARACTERS = LONGEST_CHARACTERS
MAX_NAME_CHARACTERS = 1_000
_YEAR_9999 = 253_402_300_799.0
_HINT = (
    "An export of this program (sessions export --format json), or messages like"
    ' {"messages": [{"role": "user", "content": "..."}, ...]}, also as JSON lines.'
)

Kind = TypeVar("Kind")
Part = tuple[Any, str]
"""A value in a file, and where it stands."""


@dataclass(frozen=True)
class _Ours:
    """A conversation written by `export.to_json`."""

    title: str
    model: str
    settings: dict[str, Any]
    created: float
    leaf: int | None
    messages: list[Any]


@dataclass(frozen=True)
class _OurMessage:
    id: int
    parent: int | None
    role: Role
    text: str
    created: float
    finish: Finish | None = None
    pinned: bool | None = None


@dataclass(frozen=True)
class _Said:
    role: str
    content: Any = None
    tool_calls: Any = None
    function_call: Any = None


@dataclass(frozen=True)
class _TextPart:
    type: Literal["text", "input_text", "output_text"]
    text: str


def read(path: Path, notes: list[str] | None = None) -> list[Conversation]:
    """The conversations of a file, see `parse`."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Give a file.") from error
    return parse(raw, str(path), notes)


def parse(raw: bytes, name: str, notes: list[str] | None = None) -> list[Conversation]:
    """The conversations in the bytes of a file; none without messages. `notes` gets what was left out.

    Raises:
        UsageError: something in it is wrong; says where and what.
    """
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{name} is larger than {MAX_BYTES >> 20} MiB.", "Import it in parts.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} {why_no_json(error)}.") from error
    if not text.strip():
        raise UsageError(f"{name} is empty.", _HINT)
    left_out: list[str] = []
    found = list(_conversations(text, name, left_out))
    if left_out and notes is not None:
        notes.append(f"Messages left out, of tools or without a text: {len(left_out):,}.")
    if sum(len(conversation.messages) for conversation in found) > MAX_MESSAGES:
        raise UsageError(f"{name} has more than {MAX_MESSAGES:,} messages.", "Import it in parts.")
    return found


def _conversations(text: str, name: str, left_out: list[str]) -> Iterator[Conversation]:
    try:
        values = [(json.loads(text), name)]
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        if not isinstance(error, json.JSONDecodeError) or error.msg != "Extra data" or line == 1:
            where = name if line is None else f"{name} line {line}"
            raise UsageError(f"{where} {why_no_json(error)}.", _HINT) from error
        values = list(_lines(text, name))
    if _has(values[0][0], "role"):
        yield _of_openai(values, "", name, left_out)
    else:
        yield from (_conversation(value, where, left_out) for value, where in values)


def _lines(text: str, name: str) -> Iterator[Part]:
    """The values of JSON lines; empty lines do not count."""
    count = 0
    for number, line in enumerate(text.split("\n"), 1):  # splitlines() would also cut inside of texts
        if not line.strip():
            continue
        count += 1
        if count > MAX_MESSAGES:
            raise UsageError(f"{name} has more than {MAX_MESSAGES:,} lines.", "Import it in parts.")
        try:
            yield json.loads(line), f"{name} line {number}"
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{name} line {number} {why_no_json(error)}.", _HINT) from error


def _has(value: Any, key: str) -> bool:
    return isinstance(value, dict) and value.get(key) is not None


def _conversation(value: Any, where: str, left_out: list[str]) -> Conversation:
    if isinstance(value, list):
        return _of_openai(_each(value, f"{where}: "), "", where, left_out)
    if _has(value, "format") or _has(value, "schema"):
        return _ours(value, where)
    if not isinstance(value, dict):
        raise UsageError(f"{where} is {seen(value)} and not an object.", _HINT)
    if "messages" not in value:
        raise UsageError(f"{where} has no messages.", _HINT)
    model, messages = value.get("model"), value["messages"]
    if not isinstance(messages, list):
        raise UsageError(f"{where}: messages is {seen(messages)} and not a list.", _HINT)
    name = "" if model is None else _text(model, f"{where}: model", MAX_NAME_CHARACTERS)
    return _of_openai(_each(messages, f"{where}: messages"), name, f"{where}: messages", left_out)


def _each(values: Sequence[Any], where: str) -> list[Part]:
    return [(value, f"{where}[{index}]") for index, value in enumerate(values)]


def _of_openai(parts: Sequence[Part], model: str, where: str, left_out: list[str]) -> Conversation:
    """Messages in a row. The places of those that nobody said go to `left_out`."""
    given = [(_typed(_Said, value, place), place) for value, place in _limited(parts, where)]
    said = [(one, place) for one, place in given if not _is_of_a_tool(one)]
    left_out += [place for one, place in given if _is_of_a_tool(one)]
    now = time.time()
    messages = list[StoredMessage]()
    for index, (one, place) in enumerate(_limited(said, where)):
        role, text = _role(one.role, index == 0, f"{place}.role"), _content(one.content, f"{place}.content")
        parent = index - 1 if index else None
        messages.append(StoredMessage(index, parent, role, text, created=now))
    title = next((title_of(one.text) for one in messages if one.role == "user"), "")
    return Conversation("", title, model, {}, now, now, messages[-1].id, messages)


def _is_of_a_tool(said: _Said) -> bool:
    """Whether a message is the result of a tool, or an answer without a word: the call of one."""
    calls = said.tool_calls is not None or said.function_call is not None
    wordless = said.content is None or (not said.content and calls)
    return said.role in ("tool", "function") or (said.role == "assistant" and wordless)


def _limited(parts: Sequence[tuple[Kind, str]], where: str) -> Sequence[tuple[Kind, str]]:
    if not parts:
        raise UsageError(f"{where} has no messages.", _HINT)
    if len(parts) > MAX_MESSAGES:
        more = f"{parts[MAX_MESSAGES][1]} is one message more than {MAX_MESSAGES:,}."
        raise UsageError(more, "Import it in parts.")
    return parts


def _role(role: str, first: bool, where: str) -> str:
    role = "system" if role == "developer" else role
    if role not in get_args(Role):
        raise UsageError(f"{where} is {seen(role)}.", f"One of: {', '.join(get_args(Role))}.")
    if role == "system" and not first:
        raise UsageError(f"{where} is {seen(role)}, which only the first message can be.")
    return role


def _content(value: Any, where: str) -> str:
    if isinstance(value, list):
        value = "\n".join(_typed(_TextPart, *part).text for part in _each(value, where))
    return _text(value, where, MAX_CHARACTERS)


def _ours(data: dict[str, Any], where: str) -> Conversation:
    """A conversation written by `export.to_json`. Unknown keys are ignored."""
    if data.get("format") != FORMAT:
        raise UsageError(f"{where}: format is {seen(data.get('format'))} and not {FORMAT!r}.", _HINT)
    if data.get("schema") != SCHEMA:
        schema = f"schema is {seen(data.get('schema'))}; this h2o-chat reads {SCHEMA}"
        raise UsageError(f"{where}: {schema}.", "Update h2o-chat.")
    ours = _typed(_Ours, data, where)
    messages: dict[int | None, StoredMessage | None] = {None: None}
    for value, place in _limited(_each(ours.messages, f"{where}: messages"), where):
        message = _our_message(_typed(_OurMessage, value, place), messages, place)
        messages[message.id] = message
    if ours.leaf not in messages:
        raise UsageError(f"{where}: leaf is {ours.leaf}, which is none of the messages.")
    created = _time(ours.created, f"{where}: created")
    title = _text(ours.title, f"{where}: title", MAX_NAME_CHARACTERS)
    model = _text(ours.model, f"{where}: model", MAX_NAME_CHARACTERS)
    settings = {
        name: _cleaned(precedence.check(name, value, f"{where}: settings.{name}"))
        for name, value in ours.settings.items()
        if name in precedence.NAMES and value is not None  # others are of another version
    }
    branches = [message for message in messages.values() if message is not None]
    return Conversation("", title, model, settings, created, created, ours.leaf, branches)


def _our_message(
    one: _OurMessage, before: dict[int | None, StoredMessage | None], where: str
) -> StoredMessage:
    if one.id in before:
        raise UsageError(f"{where}.id is {one.id}, which is no number or was there before.")
    if one.parent not in before:
        raise UsageError(f"{where}.parent is {one.parent}, which is none of the messages before it.")
    role = _role(one.role, one.parent is None, f"{where}.role")
    text, created = _text(one.text, f"{where}.text", MAX_CHARACTERS), _time(one.created, f"{where}.created")
    finish = one.finish if role == "assistant" else None
    return StoredMessage(*(one.id, one.parent, role, text, finish), created=created, pinned=bool(one.pinned))


def _typed(kind: type[Kind], value: Any, where: str) -> Kind:
    """An object of a file; UsageError: it is none, or has a value of another kind; says which."""
    if not isinstance(value, dict):
        raise UsageError(f"{where} is {seen(value)} and not an object.", _HINT)
    try:
        found: Kind = typed.read(kind, value, where)
    except ValueError as error:
        raise UsageError(f"{error}.", _HINT) from error
    return found


def _text(value: Any, where: str, limit: int) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where} is {seen(value)} and not a text.", "Only text can be imported.")
    if len(value) > limit:
        raise UsageError(f"{where} has {len(value):,} characters: more than {limit:,}.")
    return clean(value)


def _time(seconds: float, where: str) -> float:
    if not 0 <= seconds <= _YEAR_9999:
        raise UsageError(f"{where} is {seen(seconds)} and no time from 1970 to 9999.")
    return float(seconds)


def _cleaned(value: Any) -> Any:
    """A setting without lone surrogates, which no tokeniser takes."""
    if isinstance(value, tuple):
        return tuple(map(clean, value))
    return clean(value) if isinstance(value, str) else value
