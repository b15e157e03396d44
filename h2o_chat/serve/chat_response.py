"""Answers of /v1/chat/completions as JSON, in OpenAI's format with llama-server's `timings`.

Each dialect (also `messages_dialect.py`, `responses_dialect.py`) has the same methods: `whole` for an answer
at once; for a stream `begins`, `piece`, `calls`, `last` for each choice, and `end` behind them all.
"""

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from starlette.responses import JSONResponse

from h2o_chat.chat.templates.tool_form import Call, Parts
from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.stream import Ended

DONE = b"data: [DONE]\n\n"
WAITING = b": waiting\n\n"
"""A comment that clients ignore: it keeps the connection open."""
_KEYS = {"content": "content", "thought": "reasoning_content"}


def to_json(value: Any) -> bytes:
    """JSON in UTF-8; lone surrogates become `?`."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


class Json(JSONResponse):
    def render(self, content: Any) -> bytes:
        return to_json(content)


def sent(value: Any) -> bytes:
    return b"data: " + to_json(value) + b"\n\n"


@dataclass(frozen=True)
class ChatDialect:
    """Fields that all chunks of an answer share."""

    model: str
    tells_usage: bool = False
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))
    index: int = 0
    KIND: ClassVar = "chat.completion.chunk"
    """`object` of a chunk."""

    def begins(self) -> bytes:
        return sent(self._chunk({"role": "assistant", "content": ""}))

    def piece(self, kind: str, text: str, chances: Sequence[Any] = ()) -> bytes:
        """A part of the `content` or of the `thought`."""
        return sent(self._chunk({_KEYS[kind]: text}, chances=chances))

    def calls(self, calls: Sequence[Call]) -> bytes:
        made = [{"index": at} | one for at, one in enumerate(_calls(calls))]
        return b"".join(sent(self._chunk({"tool_calls": [one]})) for one in made)

    def last(self, ended: Ended, parts: Parts) -> bytes:
        """The end of a choice that was completed."""
        return sent(self._chunk({}, finish_of(ended, parts)) | _of_the_server(ended))

    def end(self, all_ended: Sequence[Ended]) -> bytes:
        """The end of a stream whose choices were all completed."""
        if not self.tells_usage:
            return DONE
        counted = self._about(self.KIND, []) | {"usage": usage(*all_ended)}
        return sent(counted) + DONE

    def whole(self, ended: Ended, parts: Parts, chances: Sequence[Any] = ()) -> dict[str, Any]:
        content = parts.content if parts.content or not parts.calls else None
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if parts.thought:
            message["reasoning_content"] = parts.thought
        if parts.calls:
            message["tool_calls"] = _calls(parts.calls)
        choice = {"index": self.index, "message": message, "logprobs": _logprobs(chances)}
        about = self._about("chat.completion", [choice | {"finish_reason": finish_of(ended, parts)}])
        return about | {"usage": usage(ended)} | _of_the_server(ended)

    def failed(self, error: ApiError) -> bytes:
        return sent(error.body())

    def _chunk(self, delta: Any, finish: str | None = None, chances: Sequence[Any] = ()) -> dict[str, Any]:
        choice = {
            "index": self.index,
            "delta": delta,
            "logprobs": _logprobs(chances),
            "finish_reason": finish,
        }
        return self._about(self.KIND, [choice]) | ({"usage": None} if self.tells_usage else {})

    def _about(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        about = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**about, "choices": choices}


class TextDialect(ChatDialect):
    """Answers of /v1/completions: a text that goes on."""

    KIND: ClassVar = "text_completion"

    def begins(self) -> bytes:
        return b""

    def piece(self, kind: str, text: str, chances: Sequence[Any] = ()) -> bytes:
        return sent(self._about(self.KIND, [_text_choice(text, None)]))

    def _chunk(self, delta: Any, finish: str | None = None, chances: Sequence[Any] = ()) -> dict[str, Any]:
        return self._about(self.KIND, [_text_choice("", finish)])

    def whole(self, ended: Ended, parts: Parts, chances: Sequence[Any] = ()) -> dict[str, Any]:
        choice = _text_choice(parts.content, finish_of(ended, parts))
        return self._about(self.KIND, [choice]) | {"usage": usage(ended)} | _of_the_server(ended)


def _text_choice(text: str, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


def finish_of(ended: Ended, parts: Parts) -> str:
    """OpenAI's word for what has ended an answer."""
    if parts.calls:
        return "tool_calls"
    return "length" if ended.turn.finish == "length" else "stop"


def call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def _calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    functions = [
        {"name": one.name, "arguments": json.dumps(one.arguments, ensure_ascii=False)} for one in calls
    ]
    return [{"id": call_id(), "type": "function", "function": one} for one in functions]


def _logprobs(chances: Sequence[Any]) -> dict[str, Any] | None:
    return {"content": list(chances), "refusal": None} if chances else None


def usage(ended: Ended, *others: Ended) -> dict[str, Any]:
    """The object `usage`, of all choices; `prompt_tokens` includes what was read for an earlier request."""
    turns = [one.turn for one in (ended, *others)]
    prompt, new = ended.cached_tokens + ended.turn.prompt_tokens, sum(turn.new_tokens for turn in turns)
    counted: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": new,
        "total_tokens": prompt + new,
        "prompt_tokens_details": {"cached_tokens": ended.cached_tokens},
    }
    evicted = sum(turn.evicted for turn in turns)
    return counted | ({"evicted_tokens": evicted} if evicted else {})


def _of_the_server(ended: Ended) -> dict[str, Any]:
    """Fields beyond OpenAI's: llama-server's `timings` and `id_slot`, and our `notes`."""
    turn = ended.turn
    steps = turn.new_tokens - 1
    answer_ms = 1000 * steps / turn.tok_s if turn.tok_s else 0.0
    timings = {
        "cache_n": ended.cached_tokens,
        **_pace("prompt", turn.prompt_tokens, ended.prompt_ms),
        **_pace("predicted", turn.new_tokens, answer_ms),
    }
    return {"timings": timings, "id_slot": ended.row, **notes_of(ended)}


def notes_of(ended: Ended) -> dict[str, Any]:
    notes = [{"code": one.code, "message": one.message, "about": one.about} for one in ended.notes]
    return {"notes": notes} if notes else {}


def _pace(name: str, tokens: int, ms: float) -> dict[str, float]:
    return {
        f"{name}_n": tokens,
        f"{name}_ms": round(ms, 3),
        f"{name}_per_token_ms": round(ms / tokens, 3) if tokens else 0.0,
        f"{name}_per_second": round(1000 * tokens / ms, 3) if ms else 0.0,
    }
