"""The one stream that feeds the screen, `--json`, recordings and tests.

An event is a frozen dataclass; on the wire it is one JSON object a line, `{"event": NAME, ...fields}`.
Readers ignore unknown keys and events. Standard library only: reading a recording must not import torch.

`session` begins a conversation; the `said` events right behind it are its earlier messages. A turn is `said`
by the user, some `reading` if that takes a while, `prompt`, `token` ... with `cache` and `note` between, and
`turn`. `engine/observer.py` fills `cache`, `engine/answer.py` `token` and `turn`, `engine/generation.py`
`reading` and `prompt`, `engine/runner.py` `session`, `chat/conversation/chat.py` `said` and `note`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from typing import Any, ClassVar, Literal, NoReturn, get_args

from h2o_chat.events import typed

SCHEMA = 1

Finish = Literal["eos", "length", "stop", "stopped", "error", "interrupted"]
Role = Literal["system", "user", "assistant", "tool"]
ASKS = ("user", "tool")  # roles of messages that the model answers


@dataclass(frozen=True)
class Session:
    """The model and all settings: everything needed to read, and to repeat, the events that follow."""

    event: ClassVar[str] = "session"
    model: str
    revision: str | None  # commit of the model's repository, or the fingerprint of its folder
    template: str
    policy: str
    budget: int | None  # slots per layer, row and KV head; None for the `full` policy
    sinks: int  # first tokens protected
    recent: int  # newest tokens protected
    chunk: int  # prompt tokens that attend before the next eviction
    prefill: str  # `chunked`, or `full`: a whole prompt attends to itself before anything is evicted
    quantization: str  # format of the weights
    dtype: str  # precision of the computation
    kv_dtype: str  # precision of keys and values in the slots
    device: str
    engine: str  # implementation of the step: `native`, `graph` or `transformers`
    threads: int
    seed: int  # seed of the sampling
    layers: int  # layers with attention
    kv_heads: int
    window: int  # longest context of the model's training, in tokens
    versions: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA
    stride: int = 1  # slots evicted together while decoding
    slot_bytes: int = 0  # bytes of one slot in all layers and KV heads: key, value and scores; 0: not known
    fixed_bytes: int = 0  # bytes of the states of layers that keep no keys: of a fixed size
    thought: list[str] = field(default_factory=list)
    """Marks before and after a thought, and before an answer without one."""
    opened_tokens: int = 0  # tokens of the first mark, where the prompt ends with it; 0: the answer has it
    engine_why: str = ""  # instruction set of the native step, or the reason why another engine runs


@dataclass(frozen=True)
class Said:
    """A message: the user's new one, or one from before the stream began.

    If there is a message at its place already, that one and all later ones leave the branch (an edit).
    """

    event: ClassVar[str] = "said"
    index: int  # its place in the conversation; an answer that follows has the next one
    role: Role
    text: str
    finish: Finish | None = None  # how an earlier answer ended
    hold: float | None = None  # mean hold of the tokens of an earlier message; None if they were not read
    first: int = -1  # position of the first token of an earlier message; -1 if it was not read
    last: int = -1
    texts: list[str] = field(default_factory=list)  # text of each of its tokens, as in `prompt`
    pinned: bool = False  # an earlier message whose tokens are protected from eviction
    recalled: list[tuple[int, str]] = field(default_factory=list)
    """(index of a message, words of it) that the model reads once more with this one; index -1: not known."""


@dataclass(frozen=True)
class ReadSoFar:
    """Progress of reading a prompt: at most eight events a second, none for a short prompt.

    The last one comes when all is read; it is missing if reading was stopped.
    """

    event: ClassVar[str] = "reading"
    tokens: int  # tokens read so far
    of: int  # tokens of the whole prompt
    ms: float  # time since it began

    @property
    def share(self) -> float:
        """Share of the tokens that are read, 0 to 1."""
        return self.tokens / max(1, self.of)


@dataclass(frozen=True)
class Prompt:
    """A prompt was read."""

    event: ClassVar[str] = "prompt"
    tokens: int
    first: int  # position of its first token
    last: int
    chunks: int  # forward calls that it took
    ms: float  # time of reading it
    system: int = 0  # how many of its first tokens are the system prompt
    texts: list[str] = field(default_factory=list)
    """Text of each token from the first on; a character split over tokens is with the last of them. Empty
    where nothing shows it, or there are very many."""


@dataclass(frozen=True)
class Token:
    """One generated token; `text` may be empty while a character is incomplete."""

    event: ClassVar[str] = "token"
    id: int  # in the model's vocabulary
    text: str
    position: int
    ms: float  # time of this step


@dataclass(frozen=True)
class Heavy:
    """A token kept outside the recent part, ranked by how many caches hold it; only some protected ones."""

    position: int
    text: str
    hold: float  # share of all (layer, KV head) caches that contain it
    score: float  # the policy's score, averaged over the caches that hold the token
    mean: float  # `score` divided by the number of queries that saw the token
    kind: str  # `S` protected or `H` heavy


@dataclass(frozen=True)
class Gone:
    """A token that was evicted from the last cache that held it."""

    position: int
    text: str
    hold: float  # its hold in the last event; 0 if it was in none
    score: float


@dataclass(frozen=True)
class CacheState:
    """Contents of the cache, every few tokens; `changed`, `holders` and `gone` are since the last such event.

    `heaviest`, `heads` and all fields below them are empty while the memory panel is closed.
    """

    event: ClassVar[str] = "cache"
    seen: int  # tokens fed since the conversation began
    kept: int  # slots in use, the maximum over layers and KV heads
    bytes: int  # size of all keys and values, empty slots included
    bytes_full: int  # size of a cache that never evicts
    lost: float  # share of the attention per token that evicted tokens had been receiving (0 to 1)
    kinds: dict[str, int]  # slots by kind in the fullest cache: `S` protected, `H` heavy, `R` recent
    heaviest: list[Heavy]
    changed: list[tuple[int, float, float]]
    """(position, hold, score) of the tokens whose hold has changed since the last event, or whose score has
    doubled or halved since it was reported."""
    heads: list[list[float]]
    """[layers][KV heads]: mean hold of the tokens that each cache keeps outside the recent part (do heads
    agree?)."""
    whole: bool = False  # earlier events are void: `changed` and `holders` list every token held
    protected: list[tuple[int, int]] = field(default_factory=list)  # (first, last) position of each run
    holders: list[tuple[int, str]] = field(default_factory=list)
    """(position, caches that hold it) of tokens for which that changed: hexadecimal digits, a bit a cache,
    layer by layer, the first one highest. If there are very many, the most held come first."""
    gone: list[Gone] = field(default_factory=list)  # those evicted from all caches that were held most
    gone_tokens: int = 0  # how many tokens were evicted from all caches
    ranks: list[tuple[int, float]] = field(default_factory=list)
    """(rank, score) of some tokens held, ranked by score, ever more widely spaced."""
    attended: list[int] = field(default_factory=list)
    """Positions that received more than an even share of the attention of the last 32 queries or so."""


@dataclass(frozen=True)
class Turn:
    """A turn ended."""

    event: ClassVar[str] = "turn"
    text: str  # the whole answer
    finish: Finish
    prompt_tokens: int  # tokens read before the answer; 0 if reading was stopped
    new_tokens: int  # tokens generated, including the one that ends the answer
    ttft_ms: float  # time to the first token: reading the prompt and sampling
    tok_s: float  # tokens per second after the first
    seen: int  # tokens fed since the conversation began
    kept: int  # slots in use, the maximum over layers and KV heads
    evicted: int  # `seen` - `kept`
    lost: float  # share of the attention per token that evicted tokens had received (0 to 1)
    hold: list[tuple[int, float]] = field(default_factory=list)
    """(message index, mean hold of its tokens) of the messages with tokens left in the cache."""
    stop: str = ""  # the stop string that ended the answer, which `text` does not have; empty: none did


@dataclass(frozen=True)
class Note:
    """A message for the user, though the command goes on: the disk is full, a memory was rebuilt."""

    event: ClassVar[str] = "note"
    code: str  # stable; `message` and `hint` are for people
    message: str
    hint: str = ""
    about: int | None = None  # index of the message that was pinned or unpinned, or whose words were recalled


@dataclass(frozen=True)
class Error:
    """Something went wrong; `code` is stable, `message` and `hint` are for people."""

    event: ClassVar[str] = "error"
    code: str
    message: str
    hint: str


@dataclass(frozen=True)
class End:
    """The last line of a run."""

    event: ClassVar[str] = "end"
    turns: int
    tokens: int  # tokens generated in all turns
    seconds: float  # since the command began
    conversation: str | None = None  # its id in the store, if it is stored


ReadProgress = Callable[[ReadSoFar], None]

Event = Session | Said | ReadSoFar | Prompt | Token | CacheState | Turn | Note | Error | End

KINDS: dict[str, type[Any]] = {kind.event: kind for kind in get_args(Event)}


def to_json(event: Event) -> str:
    """One line of JSON, without the newline. Lone surrogates become `?`: UTF-8 cannot encode them."""
    line = _ENCODER.encode({"event": event.event} | vars(event))
    return line.encode("utf-8", "replace").decode("utf-8")


def _fields(part: Any) -> dict[str, Any]:
    """The fields of a dataclass inside an event. Unlike `asdict` it copies nothing, which takes time."""
    if not is_dataclass(part):
        raise TypeError(f"{type(part).__name__} has no place in an event.")
    return vars(part)


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_fields)


def from_json(line: str) -> Event:
    """The event of one line; raises ValueError if it is none, and says why."""
    return event_of(object_of(line))


def object_of(line: str) -> dict[str, Any]:
    """The JSON object of one line; raises ValueError if it is none, or has NaN or infinity."""
    try:
        data = json.loads(line, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError(f"an event is a JSON object, this line is a {type(data).__name__}")
    return data


def event_of(data: dict[str, Any]) -> Event:
    """The event of one JSON object; unknown keys are ignored. Raises ValueError, which says what is wrong."""
    name = data.get("event")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"unknown event {typed.seen(name)}; known: {', '.join(KINDS)}")
    if isinstance(words := data.get("recalled"), str):  # until version 1.1 one piece
        data = data | {"recalled": [[data.get("recalled_from", -1), words]] if words else []}
    event: Event = typed.read(kind, data, str(name))
    return event


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
