"""/v1/responses, OpenAI's second format: its requests as chat requests, and answers in its own events."""

import itertools
import json
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from h2o_chat.chat.templates.tool_form import Call, Parts
from h2o_chat.serve.api_errors import ApiError, wrong
from h2o_chat.serve.chat_response import call_id, notes_of, to_json
from h2o_chat.serve.stream import Ended

HELD = 256
"""Conversations that `previous_response_id` can name, of all keys together."""
HELD_CHARACTERS = 64 << 20
"""Most characters of them all; what two conversations share counts twice."""
_OWN = ("input", "instructions", "previous_response_id", "max_output_tokens", "reasoning", "text")
_TOLD_AGAIN = ("instructions", "previous_response_id", "max_output_tokens", "temperature", "top_p")
Body = Mapping[str, Any]
Messages = list[dict[str, Any]]


class Conversations:
    """The messages up to each answer, by its id; each key finds its own only. Thread-safe."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[bytes, str], tuple[Messages, int]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, owner: bytes, id_: str, messages: Messages) -> None:
        """Holds one more; the key with most characters loses its oldest where there are too many."""
        size = sum(len(json.dumps(one)) for one in messages)
        with self._lock:
            self._held[owner, id_] = messages, size
            while len(self._held) > HELD or sum(each for _, each in self._held.values()) > HELD_CHARACTERS:
                of = Counter[bytes]()
                for (key, _), (_, each) in self._held.items():
                    of[key] += each
                most = max(of.values())
                del self._held[next(one for one in self._held if of[one[0]] == most)]

    def find(self, owner: bytes, id_: Any) -> Messages:
        """The messages up to an answer; raises ApiError where none is held by that id."""
        with self._lock:
            found = self._held.get((owner, str(id_)))
        if found is None:
            what = f"No conversation {str(id_)[:60]!a} is held."
            raise ApiError(404, what, "not_found", "previous_response_id")
        return found[0]


def chat_body(body: Body, before: Messages) -> dict[str, Any]:
    """The body of a chat request that asks for the same, behind the messages `before`.

    Raises ApiError if it cannot be understood.
    """
    made = {key: value for key, value in body.items() if key not in _OWN}
    if body.get("max_output_tokens") is not None:
        made["max_tokens"] = body["max_output_tokens"]
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list):
        raise wrong("input", "input is no text and no list of items.")
    system = body.get("instructions")
    first = [{"role": "system", "content": system}] if system else []
    made["messages"] = first + before + messages_of(items)
    match body.get("reasoning"):
        case {"effort": effort}:
            made["reasoning_effort"] = effort
    match body.get("text"):
        case {"format": dict(wanted)}:
            made["response_format"] = wanted
    return made


def messages_of(items: Sequence[Any]) -> Messages:
    """Chat messages of items, their texts unchecked; what is said and called in a row is one answer."""
    made: Messages = []
    for at, item in enumerate(items):
        match item:
            case {"type": "function_call", "call_id": str(id_), "name": str(name), "arguments": given}:
                if not made or made[-1]["role"] != "assistant":
                    made.append({"role": "assistant", "content": None})
                function = {"name": name, "arguments": given}
                call = {"id": id_, "type": "function", "function": function}
                made[-1].setdefault("tool_calls", []).append(call)
            case {"type": "reasoning"}:
                pass
            case {"type": "function_call_output", "call_id": str(id_), "output": output}:
                made.append({"role": "tool", "tool_call_id": id_, "content": output})
            case {"type": "message", "role": str(role), "content": content}:
                made.append({"role": role, "content": content})
            case {"role": str(role), "content": content} if "type" not in item:
                made.append({"role": role, "content": content})
            case _:
                raise wrong(f"input[{at}]", f"input[{at}] is no message, function_call or its output.")
    return made


@dataclass
class ResponsesDialect:
    """An answer as a response; see `ChatDialect`."""

    model: str
    body: Body
    """The request's: some of it is told again."""
    hold: Callable[[str, list[Any]], None]
    """Called with the id and the items of the answer, so that it can go on."""
    id: str = field(default_factory=lambda: f"resp_{secrets.token_hex(16)}")
    created: float = field(default_factory=lambda: int(time.time()))
    _number: Iterator[int] = field(default_factory=itertools.count)
    _items: list[dict[str, Any]] = field(default_factory=list)
    """Output items that were sent; the last may not be complete."""
    _open: str = ""  # the key of the text that is being sent: `content` or `thought`

    def begins(self) -> bytes:
        begun = self._about("in_progress", [], None)
        created = self._event("response.created", response=begun)
        return created + self._event("response.in_progress", response=begun)

    def piece(self, kind: str, text: str, chances: Sequence[Any] = ()) -> bytes:
        begun = b"" if self._open == kind else self._closed() + self._opened(kind)
        part = self._items[-1]["content"][0]
        part["text"] += text
        name = "output_text" if kind == "content" else "reasoning_text"
        more: dict[str, Any] = {"logprobs": list(chances)} if kind == "content" else {}
        return begun + self._part(f"{name}.delta", delta=text, **more)

    def calls(self, calls: Sequence[Call]) -> bytes:
        made = self._closed()
        for one in calls:
            item = _function_call(one)
            self._items.append(item)
            kind, given, at = "response.function_call_arguments", item["arguments"], self._at()
            made += self._item("added", item | {"arguments": "", "status": "in_progress"})
            made += self._event(f"{kind}.delta", delta=given, **at)
            made += self._event(f"{kind}.done", arguments=given, name=item["name"], **at)
            made += self._item("done", item)
        return made

    def last(self, ended: Ended, parts: Parts) -> bytes:
        opened = b"" if self._items else self._opened("content")
        return opened + self._closed(_status(ended))

    def end(self, all_ended: Sequence[Ended]) -> bytes:
        (ended,) = all_ended
        self.hold(self.id, self._items)
        whole = self._about(_status(ended), self._items, ended)
        return self._event(f"response.{whole['status']}", response=whole)

    def failed(self, error: ApiError) -> bytes:
        return self._event("error", code=error.code, message=error.message, param=error.param)

    def whole(self, ended: Ended, parts: Parts, chances: Sequence[Any] = ()) -> dict[str, Any]:
        items = [_reasoning(parts.thought)] if parts.thought else []
        items += [_message(parts.content, _status(ended))] if parts.content or not parts.calls else []
        items += map(_function_call, parts.calls)
        self.hold(self.id, items)
        return self._about(_status(ended), items, ended)

    def _about(self, status: str, items: list[dict[str, Any]], ended: Ended | None) -> dict[str, Any]:
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "model": self.model,
            "output": items,
            "parallel_tool_calls": True,
            "tool_choice": self.body.get("tool_choice") or "auto",
            "tools": self.body.get("tools") or [],
            "metadata": self.body.get("metadata") or {},
            **{key: self.body.get(key) for key in _TOLD_AGAIN},
            **({} if ended is None else {"usage": _usage(ended), **notes_of(ended)}),
        }

    def _opened(self, kind: str) -> bytes:
        self._open = kind
        item = _message("", "in_progress") if kind == "content" else _reasoning("")
        self._items.append(item)
        added = self._item("added", item | {"content": []})
        return added + self._part("content_part.added", part=item["content"][0])

    def _closed(self, status: str = "completed") -> bytes:
        if not self._open:
            return b""
        item, kind, self._open = self._items[-1], self._open, ""
        item["status"] = status
        part, name = item["content"][0], "output_text" if kind == "content" else "reasoning_text"
        more: dict[str, Any] = {"logprobs": []} if kind == "content" else {}
        done = self._part(f"{name}.done", text=part["text"], **more)
        return done + self._part("content_part.done", part=part) + self._item("done", item)

    def _at(self) -> dict[str, Any]:
        return {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}

    def _item(self, what: str, item: Any) -> bytes:
        return self._event(f"response.output_item.{what}", item=item, output_index=len(self._items) - 1)

    def _part(self, kind: str, **values: Any) -> bytes:
        return self._event(f"response.{kind}", **values, **self._at(), content_index=0)

    def _event(self, kind: str, **values: Any) -> bytes:
        told = {"type": kind, "sequence_number": next(self._number), **values}
        return f"event: {kind}\ndata: ".encode() + to_json(told) + b"\n\n"


def _status(ended: Ended) -> str:
    return "incomplete" if ended.turn.finish == "length" else "completed"


def _message(text: str, status: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    id_ = f"msg_{secrets.token_hex(16)}"
    return {"type": "message", "id": id_, "role": "assistant", "status": status, "content": [part]}


def _reasoning(text: str) -> dict[str, Any]:
    part = {"type": "reasoning_text", "text": text}
    return {"type": "reasoning", "id": f"rs_{secrets.token_hex(16)}", "summary": [], "content": [part]}


def _function_call(call: Call) -> dict[str, Any]:
    given = json.dumps(call.arguments, ensure_ascii=False)
    about = {"type": "function_call", "id": f"fc_{secrets.token_hex(16)}", "call_id": call_id()}
    return {**about, "name": call.name, "arguments": given, "status": "completed"}


def _usage(ended: Ended) -> dict[str, Any]:
    read, new = ended.cached_tokens + ended.turn.prompt_tokens, ended.turn.new_tokens
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": ended.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": new,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + new,
    }
