"""The one stream that feeds the screen, `--json`, recordings and tests.

An event is a frozen dataclass; on the wire it is one JSON object a line, `{"event": NAME, ...fields}`.
Readers ignore keys and events that they do not know. Words (seen, kept, hold, lost, kind) mean what README.md
says. Standard library only: reading a recording must not cost an import of torch.

`session` begins a conversation, the `said` right behind it tell what was said in it before. A turn is `said`
by the user, `reading` ... where that takes a while, `prompt`, `token` ... with `cache` and `note` between
them, and `turn`.
"""

import json
from dataclasses import dataclass, field, is_dataclass
from typing import Any, ClassVar, Literal, NoReturn, get_args

from h2o_chat.events import typed

SCHEMA = 1

Finish = Literal["eos", "length", "stop", "stopped", "error", "interrupted"]
Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Session:
    """What ran: everything needed to read, and to repeat, what follows."""

    event: ClassVar[str] = "session"
    model: str
    revision: str | None
    """Of the repository it came from; of a folder, its fingerprint."""
    template: str
    policy: str
    budget: int | None
    """Slots per layer, row and KV head; None for the `full` policy."""
    sinks: int
    """First tokens protected."""
    recent: int
    """Newest tokens protected."""
    chunk: int
    """Prompt tokens that attend before the next eviction."""
    prefill: str
    """`chunked`, or `full`: a whole prompt attends to itself before anything is evicted."""
    quantization: str
    """Of the weights."""
    dtype: str
    """Precision that is computed in."""
    kv_dtype: str
    """Precision of keys and values in the slots."""
    device: str
    engine: str
    """What computes a step: `native` or `transformers`."""
    threads: int
    seed: int
    """Of the sampling."""
    layers: int
    """Those with attention."""
    kv_heads: int
    window: int
    """Tokens the model was trained to look back."""
    versions: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA
    stride: int = 1
    """Slots given up at once while decoding."""
    slot_bytes: int = 0
    """Of one slot in all layers and KV heads, with what is counted beside its key and value; 0: not known."""
    engine_why: str = ""
    """Of the native step: which form of it this processor runs. Else why it was not taken."""


@dataclass(frozen=True)
class Said:
    """A message of the conversation: what the user says now, or what was said before the stream began.

    What stood at its place, and all behind that, is on another branch from here on (a message was edited).
    """

    event: ClassVar[str] = "said"
    index: int
    """Its place in the conversation; an answer that follows has the next one."""
    role: Role
    text: str
    finish: Finish | None = None
    """How an answer of before ended."""
    hold: float | None = None
    """Mean hold of its tokens, where it was said before and they were read."""
    first: int = -1
    """Position of its first token, where it was said before; -1 where they were not read."""
    last: int = -1
    texts: list[str] = field(default_factory=list)
    """The text of each of its tokens, as in `prompt`."""
    pinned: bool = False
    """It was said before, and its tokens are protected from eviction."""
    recalled: list[tuple[int, str]] = field(default_factory=list)
    """(place of a message, words of it) that the model reads once more with this one; place -1: not known."""


@dataclass(frozen=True)
class ReadSoFar:
    """How far the reading of a prompt is: at most eight a second, none of one that is read sooner than that.

    The last one, where there is any, comes when all was read; none does where it was stopped.
    """

    event: ClassVar[str] = "reading"
    tokens: int
    """Read so far."""
    of: int
    """To be read in all."""
    ms: float
    """Time since it began."""

    @property
    def share(self) -> float:
        """Of the tokens, 0 to 1."""
        return self.tokens / max(1, self.of)


@dataclass(frozen=True)
class Prompt:
    """A prompt was read."""

    event: ClassVar[str] = "prompt"
    tokens: int
    first: int
    """Position of its first token."""
    last: int
    chunks: int
    """Calls of the model that it took."""
    ms: float
    """Time of reading it."""
    system: int = 0
    """How many of its first tokens are the system prompt."""
    texts: list[str] = field(default_factory=list)
    """The text of each token from the first on; a character split over tokens is with the last of them.
    Empty where nobody looks, or they are very many."""


@dataclass(frozen=True)
class Token:
    """One generated token; `text` may be empty while a character is incomplete."""

    event: ClassVar[str] = "token"
    id: int
    """In the model's vocabulary."""
    text: str
    position: int
    ms: float
    """Time of this step alone."""


@dataclass(frozen=True)
class Heavy:
    """A token kept outside the recent part, ranked by how many caches hold it; of the protected a few."""

    position: int
    text: str
    hold: float
    """Share of all (layer, KV head) caches that contain it."""
    score: float
    """What the policy ranks by, averaged over the caches that hold it."""
    mean: float
    """`score` / queries that saw the token."""
    kind: str
    """`S` protected or `H` heavy."""


@dataclass(frozen=True)
class Gone:
    """A token that left the last of the caches that held it."""

    position: int
    text: str
    hold: float
    """As it was told last; 0 if it went before it was ever told."""
    score: float


@dataclass(frozen=True)
class CacheState:
    """What the cache holds, every few tokens; `changed`, `holders` and `gone` since the last one of these.

    What a screen shows only on its memory panel is empty while nobody looks at that: `heaviest`, `heads` and
    all fields below them.
    """

    event: ClassVar[str] = "cache"
    seen: int
    """Tokens fed since the conversation began."""
    kept: int
    """Slots in use, the maximum over layers and KV heads."""
    bytes: int
    """Of all keys and values, empty slots included."""
    bytes_full: int
    """What a cache that never evicts would hold."""
    lost: float
    """Attention that the dropped tokens had been receiving, as a share of all, per token (0 to 1)."""
    kinds: dict[str, int]
    """Slots by kind in the fullest cache: `S` protected, `H` heavy, `R` recent."""
    heaviest: list[Heavy]
    changed: list[tuple[int, float, float]]
    """(position, hold, score) of the tokens whose hold moved since the last such event, or whose score has
    doubled or halved since it was told."""
    heads: list[list[float]]
    """[layers][KV heads]: mean hold of what each cache keeps outside the recent part (do heads agree?)."""
    whole: bool = False
    """Nothing that was told before counts: `changed` and `holders` tell of every token held."""
    protected: list[tuple[int, int]] = field(default_factory=list)
    """(first, last) position of each run of tokens that are protected."""
    holders: list[tuple[int, str]] = field(default_factory=list)
    """(position, which caches hold it) of the tokens held for which that changed: hexadecimal digits, a bit
    a cache, layer by layer, the first one highest. Of very many, the most held; the others come later."""
    gone: list[Gone] = field(default_factory=list)
    """The tokens that went, at most a few: those that were held most."""
    gone_tokens: int = 0
    """How many went."""
    ranks: list[tuple[int, float]] = field(default_factory=list)
    """(rank, score) of some tokens held, ranked by score: fewer and fewer towards the last."""
    attended: list[int] = field(default_factory=list)
    """Positions that lately (about 32 queries) received more than an even share of the attention."""


@dataclass(frozen=True)
class Turn:
    """A turn ended."""

    event: ClassVar[str] = "turn"
    text: str
    """The whole answer."""
    finish: Finish
    prompt_tokens: int
    """Tokens read before the answer; 0 where they were not read to their end."""
    new_tokens: int
    """Tokens generated, one that ends the answer included."""
    ttft_ms: float
    """Time to the first token: reading the prompt, and choosing it."""
    tok_s: float
    """Tokens per second, those after the first."""
    seen: int
    """Tokens fed since the conversation began."""
    kept: int
    """Slots in use, the maximum over layers and KV heads."""
    evicted: int
    """`seen` - `kept`."""
    lost: float
    """Attention that dropped tokens had been receiving, as a share of all, per token of a turn (0 to 1)."""
    hold: list[tuple[int, float]] = field(default_factory=list)
    """(message index, mean hold of its tokens) of the messages of which something is left."""


@dataclass(frozen=True)
class Note:
    """Something that a person should know, though nothing failed: the disk is full, a memory was rebuilt."""

    event: ClassVar[str] = "note"
    code: str
    """Stable; `message` and `hint` are for people."""
    message: str
    hint: str = ""
    about: int | None = None
    """The place of the message that was just `pinned` or `unpinned`, or whose words were `recalled`."""


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
    tokens: int
    """Generated in all of them."""
    seconds: float
    """Since the command began."""
    conversation: str | None = None
    """Its id in the store, where it was stored."""


Event = Session | Said | ReadSoFar | Prompt | Token | CacheState | Turn | Note | Error | End

KINDS: dict[str, type[Any]] = {kind.event: kind for kind in get_args(Event)}


def to_json(event: Event) -> str:
    """One line of JSON, without the newline. Lone surrogates cannot be written and become `?`."""
    line = _ENCODER.encode({"event": event.event} | vars(event))
    return line.encode("utf-8", "replace").decode("utf-8")


def _fields(part: Any) -> dict[str, Any]:
    """Of a dataclass in an event. Unlike `asdict` it copies nothing: a token would wait for it.

    Raises:
        TypeError: something else, which has no place in an event.
    """
    if not is_dataclass(part):
        raise TypeError(f"{type(part).__name__} has no place in an event.")
    return vars(part)


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_fields)


def from_json(line: str) -> Event:
    """The event of one line.

    Raises:
        ValueError: the line is not a JSON object, or not one of our events; says which.
    """
    return event_of(object_of(line))


def object_of(line: str) -> dict[str, Any]:
    """The JSON object of one line.

    Raises:
        ValueError: it is none, or has numbers that are none; says where.
    """
    try:
        data = json.loads(line, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError(f"an event is a JSON object, this line is a {type(data).__name__}")
    return data


def event_of(data: dict[str, Any]) -> Event:
    """The event of one JSON object; keys that it does not know are left alone.

    Raises:
        ValueError: it is none of our events, or a field is missing or of the wrong type; says which.
    """
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
