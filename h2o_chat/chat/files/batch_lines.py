"""The input of `run --batch`: a JSON object a line, all checked before anything is computed."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from h2o_chat.base import precedence
from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import UsageError, name_of, refusal, why_no_json
from h2o_chat.chat.conversation.message import LONGEST_CHARACTERS
from h2o_chat.chat.templates.chat_template import Template, literal
from h2o_chat.engine.request import Request, RequestPiece
from h2o_chat.store import clean

LINE_BYTES = 64 << 20
ID_CHARACTERS = 1_000
SHOWN = 20
"""Bad lines that are named; the others are counted."""

SAMPLING = tuple(field.name for field in fields(Sampling))
"""Keys of a line that say how its answer is drawn; flags say the rest."""
KEYS = ("id", "prompt", "messages", "seed", "max_completion_tokens", *SAMPLING)

_HINT = (
    'A line is like {"id": "1", "prompt": "..."}'
    ' or {"id": "2", "messages": [{"role": "user", "content": "..."}]}.'
)


@dataclass(frozen=True)
class BatchLine:
    id: str | int
    line: int
    messages: tuple[tuple[str, str], ...]
    """(role, text): perhaps a system prompt, then user and assistant by turns; a user's is last."""
    changes: dict[str, Any]
    seed: int | None

    @property
    def digest(self) -> str:
        """Digest of the question: another question, another answer."""
        asked = json.dumps([self.messages, self.changes, self.seed], sort_keys=True)
        return f"sha256 {sha256(asked.encode()).hexdigest()[:16]}"


def read_jobs(path: Path, skip_bad: bool) -> tuple[list[BatchLine], list[UsageError]]:
    """The lines of a file, and the errors of those that are left out.

    Empty lines do not count. Of two lines with one id the first counts.

    Raises:
        UsageError: it cannot be read; or lines are bad and may not be skipped: names the first of them.
    """
    jobs: dict[str, BatchLine] = {}
    wrong: list[UsageError] = []
    for number, raw in _lines(path):
        try:
            job = _job(raw, number, f"{path} line {number:,}")
            if first := jobs.get(str(job.id)):
                _wrong(f"{path} line {number:,}", f"has the id of line {first.line:,}: {name_of(job.id)!r}")
            jobs[str(job.id)] = job
        except UsageError as error:
            wrong.append(error)
    if wrong and not skip_bad:
        more = f" {len(wrong) - 1:,} more lines are bad." if len(wrong) > 1 else ""
        hint = f"{wrong[0].hint} Or leave bad lines out: --skip-bad.".strip()
        raise UsageError(wrong[0].message + more, hint)
    return list(jobs.values()), wrong


def request_of(
    job: BatchLine, template: Template, tokenizer: Any, sampling: Sampling, system: str | None, seed: int
) -> Request:
    """The request of a line; sampling, system prompt and seed of the batch: for what it does not say."""
    messages = list(job.messages)
    if messages[0][0] == "system":
        system = messages.pop(0)[1]
    first = template.first(system, messages.pop(0)[1])
    pieces = [RequestPiece(first.ids)]
    for role, text in messages:
        answer = role == "assistant"
        ids = literal(tokenizer, text) if answer else template.later(text).ids
        pieces.append(RequestPiece(ids, answer))
    sampling = replace(sampling, **job.changes)
    if template.marker:
        sampling = replace(sampling, stop=(*sampling.stop, template.marker))
    own = seed_of(seed, job.id) if job.seed is None else job.seed
    return Request(pieces, sampling, own, first.tokens_before_text if system else 0)


def seed_of(seed: int, id: str | int) -> int:
    """The seed of a line that names none: the same in every run, in any order."""
    return int.from_bytes(sha256(f"{seed}:{id}".encode("utf-8", "surrogatepass")).digest()[:4])


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, and their numbers."""
    try:
        with path.open("rb") as file:
            lines = iter(partial(file.readline, LINE_BYTES + 1), b"")
            for number, raw in enumerate(lines, 1):
                if len(raw) > LINE_BYTES:
                    _wrong(f"{path} line {number:,}", f"is longer than {LINE_BYTES >> 20} MiB")
                raw = raw.removeprefix(BOM_UTF8) if number == 1 else raw
                if raw.strip():
                    yield number, raw
    except (OSError, ValueError) as error:  # ValueError: there is a NUL in the name
        raise UsageError(f"{path} cannot be read: {refusal(error)}.", "Give a file of JSON lines.") from error


def _wrong(where: str, what: str, hint: str = _HINT) -> NoReturn:
    raise UsageError(f"{where} {what}.", hint)


def _job(raw: bytes, number: int, where: str) -> BatchLine:
    """UsageError: the line cannot be used; begins with `where`."""
    try:
        line = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        _wrong(where, why_no_json(error))
    if not isinstance(line, dict):
        _wrong(where, "is no object")
    for key in line:
        if key not in KEYS:
            _wrong(where, f"has a key that is not known: {name_of(key)[:40]!r}", f"Known: {', '.join(KEYS)}.")
    changes = {name: line[name] for name in SAMPLING if line.get(name) is not None}
    if line.get("max_completion_tokens") is not None:
        if "max_tokens" in changes:
            _wrong(where, "has max_tokens and max_completion_tokens", "Give one of them.")
        changes["max_tokens"] = line["max_completion_tokens"]
    if isinstance(changes.get("stop"), str):
        changes["stop"] = [changes["stop"]]
    changes = {name: precedence.check(name, value, f"{where}: {name}") for name, value in changes.items()}
    seed = line.get("seed")
    if seed is not None:
        seed = precedence.check("seed", seed, f"{where}: seed")
    return BatchLine(_id(line, where), number, tuple(_messages(line, where)), changes, seed)


def _id(line: dict[str, Any], where: str) -> str | int:
    found = line.get("id")
    if type(found) is int and abs(found) < 2**63:
        return found
    if not isinstance(found, str) or not 0 < len(found) <= ID_CHARACTERS:
        _wrong(where, f"has no id, which is a text of at most {ID_CHARACTERS:,} characters or a whole number")
    return clean(found)


def _messages(line: dict[str, Any], where: str) -> Iterator[tuple[str, str]]:
    prompt, messages = line.get("prompt"), line.get("messages")
    if prompt is not None and messages is not None:
        _wrong(where, "has prompt and messages: one of them is needed")
    if prompt is None and messages is None:
        _wrong(where, "has no prompt and no messages")
    if messages is None:
        yield "user", _text(prompt, f"{where}: prompt")
        return
    if not isinstance(messages, list) or not messages:
        _wrong(f"{where}: messages", "is no list of messages")
    wanted = "user"
    for index, message in enumerate(messages):
        here = f"{where}: messages[{index}]"
        if not isinstance(message, dict) or set(message) - {"role", "content", "name"}:
            _wrong(here, "is no object of role and content")
        role = "system" if message.get("role") == "developer" else message.get("role")
        if role == "system" and index == 0:
            yield "system", _text(message.get("content"), f"{here}.content")
            continue
        if role != wanted:
            _wrong(f"{here}.role", f"is {name_of(role)[:40]!r}, and {wanted} comes here")
        yield role, _text(message.get("content"), f"{here}.content")
        wanted = "assistant" if wanted == "user" else "user"
    if wanted == "user":
        _wrong(f"{where}: messages", "do not end with a user's")


def _text(value: Any, where: str) -> str:
    if isinstance(value, list):
        parts = [part if isinstance(part, dict) else {} for part in value]
        if any(part.get("type") != "text" or not isinstance(part.get("text"), str) for part in parts):
            _wrong(where, "has a part that is no text", "Only text can be said.")
        value = "\n".join(part["text"] for part in parts)
    if not isinstance(value, str) or not value:
        _wrong(where, "is no text")
    if len(value) > LONGEST_CHARACTERS:
        _wrong(where, f"has {len(value):,} characters: {LONGEST_CHARACTERS:,} is the most")
    return clean(value)
