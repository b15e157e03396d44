"""/v1/messages, Anthropic's format: its requests as chat requests, and answers in its own events."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from h2o_chat.chat.templates.tool_form import Call, Parts
from h2o_chat.serve.api_errors import ApiError, wrong
from h2o_chat.serve.chat_response import notes_of, to_json
from h2o_chat.serve.request_bodies import list_of
from h2o_chat.serve.stream import Ended

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_OWN = ("system", "messages", "tools", "tool_choice", "thinking", "stop_sequences")
Body = Mapping[str, Any]


def chat_body(body: Body) -> dict[str, Any]:
    """The body of a chat request that asks for the same; raises ApiError if it cannot be understood."""
    made = {key: value for key, value in body.items() if key not in _OWN}
    if "max_tokens" not in body:
        raise wrong("max_tokens", "max_tokens is missing.")
    if stops := body.get("stop_sequences"):
        made["stop"] = stops
    system = _text(body.get("system") or "", "system")
    first = [{"role": "system", "content": system}] if system else []
    made["messages"] = first + [
        part for at, one in enumerate(list_of(body.get("messages"), "messages")) for part in _message(one, at)
    ]
    made["tools"] = [_tool(one, at) for at, one in enumerate(list_of(body.get("tools") or [], "tools"))]
    match body.get("thinking"):
        case {"type": str(kind)}:
            made["chat_template_kwargs"] = {"enable_thinking": kind != "disabled"}
    match body.get("tool_choice"):
        case None:
            pass
        case {"type": "tool", "name": str(name)}:
            made["tool_choice"] = {"type": "function", "function": {"name": name}}
        case {"type": str(kind)} if kind in _CHOICES:
            made["tool_choice"] = _CHOICES[kind]
        case _:
            raise wrong("tool_choice", "tool_choice has a type that is not auto, any, none or tool.")
    return made


def _tool(one: Any, at: int) -> dict[str, Any]:
    if not isinstance(one, dict) or "input_schema" not in one:
        raise wrong(f"tools[{at}]", f"tools[{at}] has no input_schema: only the client's tools can be used.")
    about = {"name": one.get("name"), "description": one.get("description")}
    return {"type": "function", "function": about | {"parameters": one["input_schema"]}}


def _message(message: Any, at: int) -> Iterator[dict[str, Any]]:
    here = f"messages[{at}]"
    if not isinstance(message, dict):
        raise wrong(here, f"{here} is no object of role and content.")
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list_of(content, here)
    texts, calls = list[str](), list[Any]()
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "tool_use", "id": str(id_), "name": str(name), "input": dict(given)}:
                calls.append({"id": id_, "type": "function", "function": {"name": name, "arguments": given}})
            case {"type": "tool_result", "tool_use_id": str(id_)}:
                result = _text(block.get("content") or "", here)
                yield {"role": "tool", "tool_call_id": id_, "content": result}
            case {"type": "thinking" | "redacted_thinking"}:
                pass  # models are not shown their earlier thoughts
            case _:
                raise wrong(here, f"{here} has a part that is no text, tool_use or tool_result.")
    if texts or calls:
        said = {"role": message.get("role"), "content": "\n\n".join(texts)}
        yield said | ({"tool_calls": calls} if calls else {})


def _text(value: Any, where: str) -> str:
    parts = [{"type": "text", "text": value}] if isinstance(value, str) else list_of(value, where)
    if any(not isinstance(one, dict) or not isinstance(one.get("text"), str) for one in parts):
        raise wrong(where, f"{where} has a part that is no text.")
    return "\n\n".join(one["text"] for one in parts)


@dataclass
class MessagesDialect:
    """An answer in Anthropic's format; see `ChatDialect`."""

    model: str
    stops: Sequence[str] = ()
    id: str = field(default_factory=lambda: f"msg_{secrets.token_hex(12)}")
    _open: str = ""  # the type of the content block that is being sent
    _blocks: int = 0

    def begins(self) -> bytes:
        counted = {"input_tokens": 0, "output_tokens": 0}
        stop = {"stop_reason": None, "stop_sequence": None}
        return _event("message_start", message=self._about([], stop) | {"usage": counted})

    def piece(self, kind: str, text: str, chances: Sequence[Any] = ()) -> bytes:
        key = "text" if kind == "content" else "thinking"
        begun = b"" if self._open == key else self._closed() + self._opened(key, {"type": key, key: ""})
        return begun + self._delta({"type": f"{key}_delta", key: text})

    def calls(self, calls: Sequence[Call]) -> bytes:
        made = b""
        for one in calls:
            block = _tool_use(one)
            given, block["input"] = to_json(block["input"]).decode(), {}
            made += self._closed() + self._opened("tool_use", block)
            made += self._delta({"type": "input_json_delta", "partial_json": given})
        return made

    def last(self, ended: Ended, parts: Parts) -> bytes:
        about = {"usage": _usage(ended), **notes_of(ended)}
        return self._closed() + _event("message_delta", delta=self._stop(ended, parts), **about)

    def end(self, all_ended: Sequence[Ended]) -> bytes:
        return _event("message_stop")

    def failed(self, error: ApiError) -> bytes:
        return _event("error", error={"type": error.body()["error"]["type"], "message": error.message})

    def whole(self, ended: Ended, parts: Parts, chances: Sequence[Any] = ()) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if parts.thought:
            content.append({"type": "thinking", "thinking": parts.thought, "signature": ""})
        if parts.content:
            content.append({"type": "text", "text": parts.content})
        content += map(_tool_use, parts.calls)
        about = self._about(content, self._stop(ended, parts))
        return about | {"usage": _usage(ended), **notes_of(ended)}

    def _about(self, content: list[Any], stop: dict[str, Any]) -> dict[str, Any]:
        about = {"id": self.id, "type": "message", "role": "assistant", "model": self.model}
        return {**about, "content": content, **stop}

    def _stop(self, ended: Ended, parts: Parts) -> dict[str, Any]:
        """Why it ended; a model without an end token ends its turns by a text, which is no stop sequence."""
        if ended.turn.finish == "stop" and ended.turn.stop in self.stops:
            return {"stop_reason": "stop_sequence", "stop_sequence": ended.turn.stop}
        reason = "max_tokens" if ended.turn.finish == "length" else "end_turn"
        return {"stop_reason": "tool_use" if parts.calls else reason, "stop_sequence": None}

    def _opened(self, kind: str, block: Any) -> bytes:
        self._open, self._blocks = kind, self._blocks + 1
        return _event("content_block_start", index=self._blocks - 1, content_block=block)

    def _delta(self, delta: Any) -> bytes:
        return _event("content_block_delta", index=self._blocks - 1, delta=delta)

    def _closed(self) -> bytes:
        if not self._open:
            return b""
        self._open = ""
        return _event("content_block_stop", index=self._blocks - 1)


def _event(kind: str, **values: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + to_json({"type": kind, **values}) + b"\n\n"


def _tool_use(call: Call) -> dict[str, Any]:
    about = {"type": "tool_use", "id": f"toolu_{secrets.token_hex(12)}"}
    return {**about, "name": call.name, "input": call.arguments}


def _usage(ended: Ended) -> dict[str, int]:
    """Anthropic counts what was read for an earlier request apart."""
    read = {"input_tokens": ended.turn.prompt_tokens, "cache_read_input_tokens": ended.cached_tokens}
    return read | {"cache_creation_input_tokens": 0, "output_tokens": ended.turn.new_tokens}
