"""Checks the body of a chat request. What is wrong or not supported raises ApiError, which names the key."""

import difflib
import json
import secrets
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from h2o_chat.base import precedence
from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import UsageError, name_of
from h2o_chat.base.utf8 import SLICE, decoded
from h2o_chat.chat.conversation.message import LONGEST_CHARACTERS
from h2o_chat.chat.files.batch_lines import SAMPLING
from h2o_chat.chat.templates.tool_form import RESULTS, THEN, Parts, ToolForm
from h2o_chat.events.events import Note
from h2o_chat.serve.api_errors import ApiError, wrong
from h2o_chat.serve.request_bodies import flag, list_of, seen, whole_number
from h2o_chat.serve.tool_request import Tools, calls_of, penalties_of, tools_of
from h2o_chat.store import clean

MESSAGES = 4096
"""Most messages of a conversation: each one that was not read before is rendered separately."""
STOPS, STOP_CHARACTERS = 16, 256
"""Most stop texts, and characters of each: every token is compared with all of them."""

OTHERS: dict[str, tuple[Any, ...]] = {
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "id_slot": (-1,),
    "best_of": (1,),
    "n_predict": (-1,),
    "repeat_penalty": (1,),
    "typical_p": (1,),
    "mirostat": (0,),
    "web_search_options": (),
}
"""Unsupported keys that would change an answer, with the values for which they do not."""
OWN = {
    *("model", "messages", "stream", "stream_options", "seed", "n", "max_completion_tokens", "cache_prompt"),
    *("tools", "tool_choice", "response_format", "json_schema", "grammar"),
    *("reasoning_effort", "chat_template_kwargs"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"),
}
KNOWN = (*OWN, *SAMPLING, *OTHERS)
MISSPELT = 0.85
"""Similarity from which on an unknown key counts as a misspelt one."""
MEANINGLESS = ("metadata", "service_tier", "store", "user")
"""Keys of OpenAI's API that are ignored without a note: they change no answer there either."""
TEXTS = ("text", "input_text", "output_text")
"""Types of a message's parts; the last two are of /v1/responses."""
CHOICES = 16
"""Most answers to one request: each takes a row."""
VALUES = 100_000
"""Most values and names of a body: parsing them takes up to 90 ms in which no other thread runs."""
KEYS = 100
"""Most keys of a body: each is compared with all known ones."""
Message = tuple[str, str]
"""(role, text); the role is system, user, assistant or tool."""


@dataclass(frozen=True)
class ChatRequest:
    messages: tuple[Message, ...]
    """Perhaps a system prompt, then user or tool and assistant alternately; the last is no assistant's."""
    sampling: Sampling
    seed: int
    stream: bool = False
    tells_usage: bool = False
    """Whether the stream ends with a chunk of usage."""
    may_continue: bool = True
    """Whether a kept memory may be continued (`cache_prompt`)."""
    tools: Tools = field(default_factory=Tools)
    wishes: Mapping[str, Any] = field(default_factory=dict)
    """Values for `Wishes`, but for the grammar."""
    notes: tuple[Note, ...] = ()
    choices: int = 1
    think: str = "auto"
    """See `Settings.think`; auto: as the server was told."""


@dataclass(frozen=True)
class Served:
    names: frozenset[str]
    """Names of the model; empty: any is right."""
    sampling: Sampling
    system: str | None
    form: ToolForm = field(default_factory=ToolForm)
    marks: tuple[str, ...] = ()
    """Special tokens of the model's template."""
    added: Mapping[str, int] = field(default_factory=dict)
    """Tokens that the tokenizer finds in text before all others, by their text."""


def asked_for(body: dict[str, Any], served: Served) -> ChatRequest:
    notes = list[Note]()
    if len(body) > KEYS:
        raise wrong(None, f"The body has {len(body):,} keys: {KEYS} is the most.")
    for key in body:
        if key not in KNOWN and key not in MEANINGLESS:
            near = difflib.get_close_matches(key[:40], KNOWN, 1, MISSPELT)
            meant = f" Did you mean {near[0]}?" if near else ""
            notes.append(Note("ignored", f"{name_of(key[:40])!r} is not known, and ignored.{meant}"))
    for key, allowed in OTHERS.items():
        value = body.get(key)
        # 0.0 equals 0, and false does not.
        same = (value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed)
        if value is not None and not any(same):
            what = f"Only {' or '.join(map(json.dumps, allowed)) or 'null'} is supported."
            if "tool" in key or "function" in key:
                what = "Write tools and tool_choice."
            raise wrong(key, f"{key} is {seen(value)}. {what}")
    model = body.get("model")
    if served.names and model is not None and (not isinstance(model, str) or model not in served.names):
        what = f"The model {seen(model)} is not served here: {min(served.names, key=len)!r} is."
        raise ApiError(404, what, "model_not_found", "model")
    stream = flag(body, "stream", False)
    messages = list(_messages(body.get("messages"), served.form))
    tools = tools_of(body, served.form, served.marks, served.added)
    if served.system is not None and messages[0][0] != "system":
        messages.insert(0, ("system", served.system))
    if tools.tools and (described := served.form.described(tools.tools)):
        if messages[0][0] == "system":
            described = f"{messages.pop(0)[1]}\n\n{described}"
        messages.insert(0, ("system", described))
    seed = whole_number(body, "seed", -1, -(2**63), 2**63 - 1)
    return ChatRequest(
        tuple(messages),
        _sampling(body, served.sampling),
        # -1 is a random one, as llama-server has it; other negative ones are mapped into 0 to 2^63 - 1.
        secrets.randbits(32) if seed == -1 else seed % 2**63,
        stream,
        stream and _wants_usage(body),
        flag(body, "cache_prompt", True),
        tools,
        penalties_of(body),
        tuple(notes),
        whole_number(body, "n", 1, 1, CHOICES),
        _think(body, served.form.thinking.choices),
    )


def text_asked_for(body: dict[str, Any], served: Served) -> ChatRequest:
    """Checks the body of a request to go on with a text, without a template."""
    prompt = body.get("prompt")
    text = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
    if not isinstance(text, str) or not text:
        raise wrong("prompt", "prompt is no text, or empty.")
    for key in ("suffix", "echo", "logprobs"):
        if body.get(key):
            raise wrong(key, f"{key} is not supported: leave it out.")
    left_out = ("prompt", "logprobs", "tools", "suffix", "echo")
    rest = {key: value for key, value in body.items() if key not in left_out}
    asked = asked_for(rest | {"messages": [{"role": "user", "content": text}]}, replace(served, system=None))
    return replace(asked, messages=(("text", clean(text)),))


def object_of(raw: bytes) -> dict[str, Any]:
    """The JSON object of a body; raises ApiError if it is none, or has too many values."""
    if (values := _values(raw)) > VALUES:
        raise wrong(None, f"The body has at least {values:,} values: {VALUES:,} is the most.")
    try:
        body = json.loads(decoded(raw))
    except UnicodeDecodeError as error:
        raise wrong(None, f"The body is not UTF-8 text: {error.reason} at byte {error.start:,}.") from error
    except json.JSONDecodeError as error:
        raise wrong(None, f"The body is not JSON: {error.msg} at character {error.pos:,}.") from error
    except (ValueError, RecursionError) as error:
        raise wrong(None, "The body has a number that is too long, or is nested too deeply.") from error
    if not isinstance(body, dict):
        raise wrong(None, "The body is no JSON object.")
    return body


def _values(raw: bytes) -> int:
    """About how many values and names a JSON text makes, at least; counting ends above VALUES."""
    quotes = between = 0
    for piece in _unescaped(raw):
        parts = piece.split(b'"')
        outside = b"".join(parts[quotes % 2 :: 2])
        between += sum(map(outside.count, (b",", b"[", b"{")))
        quotes += len(parts) - 1
        if quotes // 2 + between > VALUES:
            break
    return quotes // 2 + between


def _unescaped(raw: bytes) -> Iterator[bytes]:
    """A JSON text without escaped backslashes and quotes, slice by slice: none is cut in two."""
    begin = 0
    while begin < len(raw):
        piece = raw[begin : begin + SLICE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2 and len(piece) > 1:
            piece = piece[:-1]
        begin += len(piece)
        yield piece.replace(rb"\\", b"").replace(rb"\"", b"")


def _wants_usage(body: dict[str, Any]) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise wrong("stream_options", f'stream_options is {seen(options)}. Write {{"include_usage": true}}.')
    return flag(options, "include_usage", False)


def _sampling(body: dict[str, Any], sampling: Sampling) -> Sampling:
    given = {key: body[key] for key in SAMPLING if body.get(key) is not None}
    if body.get("max_completion_tokens") is not None:
        if "max_tokens" in given:
            raise wrong("max_tokens", "max_tokens and max_completion_tokens were given. Give one of them.")
        given["max_tokens"] = body["max_completion_tokens"]
    if isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    changes = dict[str, Any]()
    for key, value in given.items():
        try:
            changes[key] = precedence.check(key, value, key)
        except UsageError as error:
            raise wrong(key, str(error)) from error
    stop = changes.get("stop", ())
    if len(stop) > STOPS or any(len(one) > STOP_CHARACTERS for one in stop):
        raise wrong("stop", f"stop has over {STOPS} texts, or one of over {STOP_CHARACTERS} characters.")
    return replace(sampling, **changes)


_EFFORTS = {True: "on", False: "off", "none": "off", "minimal": "low", "xhigh": "high", "max": "high"}


def _think(body: dict[str, Any], choices: Sequence[str]) -> str:
    """How the model is to think, as far as its template knows `choices`; `auto` where nothing is asked."""
    asked = body.get("chat_template_kwargs") or {}
    if not isinstance(asked, dict):
        raise wrong("chat_template_kwargs", f"chat_template_kwargs is {seen(asked)}. It must be an object.")
    effort = asked.get("reasoning_effort", body.get("reasoning_effort"))
    on = asked.get("enable_thinking", asked.get("thinking"))
    for one in (on, effort) if on is False else (effort, on):
        if one is None:
            continue
        if not isinstance(one, bool | str):
            raise wrong("reasoning_effort", f"reasoning_effort is {seen(one)}. It must be a text.")
        wanted = _EFFORTS.get(one, one)
        wanted = wanted if wanted in choices or wanted == "off" else "on"
        if wanted in choices:
            return str(wanted)
    return "auto"


def _messages(messages: Any, form: ToolForm) -> Iterator[Message]:
    """(role, text) of each message; at least one. Messages of one role in a row become one."""
    if not list_of(messages, "messages"):
        raise wrong("messages", "messages is empty. It must have at least one message.")
    if len(messages) > MESSAGES:
        raise wrong("messages", f"messages has {len(messages):,} messages: {MESSAGES:,} is the most.")
    role, texts, calls = "", list[str](), list[Any]()
    places = list[int]()
    """Places of the calls of the results in `texts`."""
    for index, message in enumerate(messages):
        here = f"messages[{index}]"
        before, (role, text) = role, _message(message, here, form)
        if role == "user" and before == "tool":  # said behind results: one turn
            role, texts[-1] = "tool", ("\n\n" if THEN in texts[-1] else THEN).join((texts[-1], text))
            continue
        if role != "user" and not _may_follow(role, before, calls):
            raise wrong(f"{here}.role", f"{here}.role is {role}. It cannot follow {before or 'nothing'}.")
        if role != before and texts:
            yield before, _joined(before, texts)
            texts, places = [], []
        if role == "tool":  # several may come in the order in which they were ready
            id_ = message.get("tool_call_id")
            place = next((at for at, one in enumerate(calls) if one.get("id") == id_), len(calls))
            places.insert(at := bisect_right(places, place), place)
            texts.insert(at, text)
        elif text or role != "system":  # clients send an empty one where they have none
            texts.append(text)
        calls = message.get("tool_calls") or (calls if role == "tool" else [])
    if role not in ("user", "tool"):
        raise wrong("messages", "messages do not end with one of role user or tool.")
    yield role, _joined(role, texts)


def _may_follow(role: str, before: str, calls: Sequence[Any]) -> bool:
    """Whether a message of a role may stand behind one of another role, which perhaps has `calls`."""
    if role == "tool":
        return bool(calls)
    return before in ("", role) if role == "system" else before in ("user", "tool")


def _joined(role: str, texts: list[str]) -> str:
    return (RESULTS if role == "tool" else "\n\n").join(texts)


def _message(message: Any, here: str, form: ToolForm) -> Message:
    if not isinstance(message, dict):
        raise wrong(here, f"{here} is no object of role and content.")
    role = "system" if message.get("role") == "developer" else message.get("role")
    for key in ("function_call", "audio", *(["tool_calls"] if role != "assistant" else [])):
        if message.get(key):
            raise wrong(f"{here}.{key}", f"{here}.{key} is not supported here.")
    if role not in ("system", "user", "assistant", "tool"):
        raise wrong(f"{here}.role", f"{here}.role is {seen(role)}. It is system, user, assistant or tool.")
    calls = calls_of(message, here) if role == "assistant" else ()
    content = message.get("content")
    text = "" if calls and content is None else _text(content, f"{here}.content")
    if role == "tool":
        return role, text.replace(RESULTS, "").replace(THEN, "")
    if not text and role == "user":
        raise wrong(f"{here}.content", f"{here}.content is empty.")
    return role, clean(form.written(Parts(text, calls))) if calls else text


def _text(value: Any, where: str) -> str:
    """A message's content: a text, or a list of text parts, each on a line of its own."""
    if isinstance(value, list):
        parts = [part if isinstance(part, dict) else {} for part in value]
        if any(part.get("type") not in TEXTS or not isinstance(part.get("text"), str) for part in parts):
            raise wrong(where, f"{where} has a part that is no text. Only text can be said.")
        value = "\n".join(part["text"] for part in parts)
    if not isinstance(value, str):
        raise wrong(where, f"{where} is no text.")
    if len(value) > LONGEST_CHARACTERS:
        raise wrong(where, f"{where} has {len(value):,} characters: {LONGEST_CHARACTERS:,} is the most.", 413)
    return clean(value)
