"""Answers as JSON, in OpenAI's format with llama-server's `timings`."""

import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.stream import Ended

DONE = b"data: [DONE]\n\n"
WAITING = b": waiting\n\n"
"""A comment that clients ignore: it keeps the connection open."""
_FINISH = {"eos": "stop", "stop": "stop", "length": "length"}


def to_json(value: Any) -> bytes:
    """JSON in UTF-8; lone surrogates become `?`."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def sent(value: Any) -> bytes:
    """An event of a stream."""
    return b"data: " + to_json(value) + b"\n\n"


@dataclass(frozen=True)
class Head:
    """Fields that all chunks of an answer share."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def chunk(self, delta: dict[str, str], tells_usage: bool, finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._about("chat.completion.chunk", [choice]) | ({"usage": None} if tells_usage else {})

    def last(self, ended: Ended, tells_usage: bool) -> bytes:
        """The end of a stream that was completed."""
        chunk = self.chunk({}, tells_usage, _FINISH[ended.turn.finish]) | _of_the_server(ended)
        if not tells_usage:
            return sent(chunk) + DONE
        counted = self._about("chat.completion.chunk", []) | {"usage": usage(ended)}
        return sent(chunk) + sent(counted) + DONE

    def whole(self, ended: Ended) -> dict[str, Any]:
        message = {"role": "assistant", "content": ended.turn.text, "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _FINISH[ended.turn.finish],
        }
        about = self._about("chat.completion", [choice])
        return about | {"usage": usage(ended)} | _of_the_server(ended)

    def _about(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def failed(error: ApiError) -> bytes:
    """The end of a stream that failed."""
    return sent(error.body())


def usage(ended: Ended) -> dict[str, Any]:
    """The object `usage`; `prompt_tokens` includes tokens that were read for an earlier request."""
    turn = ended.turn
    prompt = ended.cached_tokens + turn.prompt_tokens
    counted: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": turn.new_tokens,
        "total_tokens": prompt + turn.new_tokens,
        "prompt_tokens_details": {"cached_tokens": ended.cached_tokens},
    }
    return counted | ({"evicted_tokens": turn.evicted} if turn.evicted else {})


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
    notes = [{"code": one.code, "message": one.message, "about": one.about} for one in ended.notes]
    return {"timings": timings, "id_slot": ended.row} | ({"notes": notes} if notes else {})


def _pace(name: str, tokens: int, ms: float) -> dict[str, float]:
    return {
        f"{name}_n": tokens,
        f"{name}_ms": round(ms, 3),
        f"{name}_per_token_ms": round(ms / tokens, 3) if tokens else 0.0,
        f"{name}_per_second": round(1000 * tokens / ms, 3) if ms else 0.0,
    }
