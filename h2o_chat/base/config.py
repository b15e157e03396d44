"""All settings, with their defaults and checks. Imports nothing slow: usage errors must come at once.

A value outside its range raises UsageError, which names the flag, the value and the range.
"""

import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import platformdirs

from h2o_chat.base.errors import UsageError, refusal

ChosenPolicy = Literal["h2o", "h2o-paper", "window", "streaming", "full"]
ComparedPolicy = Literal["caote", "random", "heavy-only", "last-query", "lru", "snapkv"]
PolicyName = Literal[ChosenPolicy, ComparedPolicy]
Prefill = Literal["chunked", "full"]
Quantize = Literal["auto", "none", "int8", "int4", "nf4"]
EngineName = Literal["auto", "native", "graph", "transformers"]
Dtype = Literal["auto", "float32", "float16", "bfloat16", "float64"]
KvDtype = Literal["auto", "int8", "int4"]
RecallName = Literal["auto", "all", "off"]
ThinkName = Literal["auto", "on", "off", "low", "medium", "high"]
TemplateName = Literal["auto", "plain", "alpaca", "vicuna", "llama-2", "chatml"]

POLICY_NAMES: tuple[str, ...] = get_args(PolicyName)
CHOSEN: tuple[str, ...] = get_args(ChosenPolicy)
"""Policies that a user would choose: menus and help list them. The others are there for comparison."""
PREFILLS: tuple[str, ...] = get_args(Prefill)
QUANTIZE: tuple[str, ...] = get_args(Quantize)
KV_DTYPES: tuple[str, ...] = get_args(KvDtype)
RECALLS: tuple[str, ...] = get_args(RecallName)
TEMPLATES: tuple[str, ...] = get_args(TemplateName)
THINKS: tuple[str, ...] = get_args(ThinkName)

FILE_LIMIT_BYTES = 2**20  # a larger file is no configuration file
SCREEN_TOKENS = 8192
"""Longest answer of a chat by default: a greedy answer may repeat itself without an end. One that begins to
repeat itself is ended sooner (`chat/conversation/loops.py`)."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen and when an answer ends."""

    temperature: float = 0.0  # 0 takes the most likely token (greedy)
    top_p: float = 1.0
    top_k: int = 0  # 0 switches it off
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = 512  # None generates until the model ends the answer or the user stops it
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.temperature:
            _within("--temperature", self.temperature, 0.001, 100, "0, or in ")  # below, logits overflow
        _within("--top-p", self.top_p, 0, 1, open_low=True)
        _within("--top-k", self.top_k, 0, 1_000_000)
        _within("--min-p", self.min_p, 0, 1)
        _within("--repetition-penalty", self.repetition_penalty, 0.1, 10)  # beyond, logits overflow
        if self.max_tokens is not None:
            _within("--max-tokens", self.max_tokens, 1, 10**12)
        if any(not text for text in self.stop):
            raise UsageError("--stop is empty.", "Give the text that ends an answer.")


BY_THE_MAKERS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Fields of `Sampling` for which the makers of a model recommend values; used where the user names none."""


@dataclass(frozen=True)
class Look:
    """Appearance of the screen. It has no flag: it is chosen on the screen, which remembers it."""

    theme: str = "h2o-dark"  # h2o-dark, h2o-light, h2o-ansi, or any theme of Textual
    quiet: bool = False  # the conversation alone, without what the memory holds of it


@dataclass(frozen=True)
class Disk:
    """Limits and places on the disk. They have no flag: they are the same for all conversations."""

    saved_memories_bytes: int = 2 << 30  # of all saved memories; the oldest go, and are rebuilt on resuming
    model_folders: tuple[str, ...] = ()  # folders of GGUF files, which are listed and found by their names

    def __post_init__(self) -> None:
        _within("--saved-memories-bytes", self.saved_memories_bytes, 0, 2**63 - 1)


@dataclass(frozen=True)
class Settings:
    """The model to load and the memory to give it; one field per shared flag of the command line."""

    model: str | None = None
    budget: int = 512  # slots per layer, row and KV head; ignored by the `full` policy
    policy: PolicyName = "h2o"
    sinks: int | None = None  # first tokens never evicted; None takes the policy's own number
    recent: int | None = None  # newest tokens never evicted; None takes the policy's own share of the budget
    chunk: int | None = None  # prompt tokens read at once; None takes budget // 4, from 8 to 512
    prefill: Prefill = "chunked"  # full: a whole prompt attends to itself first; memory grows with it
    kv_dtype: KvDtype = "auto"  # precision of keys and values in the slots; auto: the model's own
    recall: RecallName = "auto"
    """auto: evicted text that a question asks for is read again with it; all: also what was said in other
    conversations."""
    engine: EngineName = "auto"
    """Implementation of the step; auto: native on a CPU, graph on a GPU, where model and settings allow
    it."""
    quantize: Quantize = "auto"
    dtype: Dtype = "auto"
    device: str = "auto"
    threads: int | None = None
    template: TemplateName = "auto"
    think: ThinkName = "auto"  # thoughts before an answer; auto: as the model's chat template has it
    system: str | None = None
    seed: int | None = None  # None draws one at random; it is printed in both cases
    events_every: int = 16  # generated tokens between two `cache` events; 0 for none

    def __post_init__(self) -> None:
        for field in fields(self):
            value, known = getattr(self, field.name), get_args(field.type)
            if get_origin(field.type) is Literal and value not in known:
                flag = "--" + field.name.replace("_", "-")
                raise UsageError(f"{flag} {value!r} is not known.", f"One of: {', '.join(known)}.")
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,4})?", self.device):  # what is here, torch says later
            raise UsageError(f"--device {self.device!r} is not known.", "One of: auto, cpu, cuda, cuda:N.")
        _within("--budget", self.budget, 1, 100_000_000)
        for name, least in {"sinks": 0, "recent": 0, "chunk": 1, "seed": 0}.items():
            if (count := getattr(self, name)) is not None:
                _within(f"--{name}", count, least, 2**63 - 1)
        if self.threads is not None:
            _within("--threads", self.threads, 1, 1024)
        _within("--events", self.events_every, 0, 1_000_000)


def data_folder(flag: Path | None) -> Path:
    """The folder of conversations: `--data`, H2O_CHAT_DATA or the platform's.

    Raises:
        UsageError: it is in the home of an unknown user (`~nobody`).
    """
    named = flag or os.environ.get("H2O_CHAT_DATA")
    if not named:
        return platformdirs.user_data_path("h2o-chat")
    try:
        return Path(named).expanduser()
    except RuntimeError as error:  # ~nobody
        raise UsageError(f"There is no data folder {str(named)!r}: {error}", "Give a path.") from error


def config_file() -> Path:
    """Path of the user's configuration file, which need not exist."""
    return platformdirs.user_config_path("h2o-chat") / "config.toml"


def read_tables(path: Path) -> dict[str, Any]:
    """The tables of a configuration file, unchecked; empty if there is no file.

    Raises:
        UsageError: it cannot be read, is too large, or is not TOML in UTF-8.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_LIMIT_BYTES + 1)
        if len(raw) > FILE_LIMIT_BYTES:
            raise UsageError(f"{path} is larger than 1 MiB.", "It is no configuration of this program.")
        return tomllib.loads(raw.decode("utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except RecursionError as error:
        raise UsageError(f"{path} cannot be read: it is nested too deep.", "It is a TOML file.") from error
    except (OSError, ValueError) as error:
        twice = "overwrite" in str(error) or "twice" in str(error)  # as tomllib says it
        hint = "A name or a table stands there a second time: keep one." if twice else "It is a TOML file."
        raise UsageError(f"{path} cannot be read: {refusal(error)}.", hint) from error


def user_aliases() -> dict[str, str]:
    """The user's own short names, `[aliases]`: repositories or folders; raises UsageError."""
    path = config_file()
    return aliases_in(read_tables(path), path)


def aliases_in(tables: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The short names in the tables of a configuration file; raises UsageError."""
    aliases = tables.get("aliases", {})
    wrong = (
        aliases if not isinstance(aliases, dict) else [k for k, v in aliases.items() if type(v) is not str]
    )
    if wrong:
        hint = 'One line each: mine = "org/name" or a folder.'
        raise UsageError(f"[aliases] in {path} is not a table of texts: {str(wrong)[:60]}.", hint)
    return {name.lower(): target for name, target in aliases.items()}


def _within(
    flag: str, value: float, low: float, high: float, place: str = "in ", *, open_low: bool = False
) -> None:
    # NaN compares false with everything, so ask for what is right rather than for what is wrong.
    if not ((low < value if open_low else low <= value) and value <= high):
        bracket = "(" if open_low else "["
        raise UsageError(f"{flag} is {value}.", f"It must be {place}{bracket}{low:,}, {high:,}].")


_HINT = 'Write [mcp.NAME] with command = ["PROGRAM", "ARGUMENT"]; also env = {NAME = "TEXT"}, timeout_s = 60.'


@dataclass(frozen=True)
class ToolServer:
    """A program that speaks MCP on its standard input and output."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]  # variables beside HOME, PATH and the like: it gets no others
    timeout_s: float  # longest time of one call


def tool_servers() -> list[ToolServer]:
    """The servers of the user's configuration; raises UsageError if the file or a server cannot be used."""
    path = config_file()
    return servers_in(read_tables(path), path)


def servers_in(tables: Mapping[str, Any], path: Path) -> list[ToolServer]:
    """The servers in the tables of a configuration file; raises UsageError."""
    named = tables.get("mcp", {})
    if not isinstance(named, dict):
        raise UsageError(f"{path}: mcp is no table of servers.", _HINT)
    return [_server(name, table, f"{path}: [mcp.{name}]") for name, table in named.items()]


def _server(name: str, table: Any, where: str) -> ToolServer:
    match table:
        case {"command": [*command], **rest} if command and rest.keys() <= {"env", "timeout_s"}:
            env: Any = rest.get("env", {})
            timeout_s: Any = rest.get("timeout_s", 60.0)
            texts = [*command, *env.values()] if isinstance(env, dict) else [env]
            timed = isinstance(timeout_s, int | float) and 0 < timeout_s < math.inf
            if timed and all(isinstance(one, str) for one in texts):
                return ToolServer(name, tuple(command), env, timeout_s)
    if isinstance(table, dict) and "env" in table:
        table = table | {"env": "..."}  # it may hold keys
    raise UsageError(f"{where} is {str(table)[:200]}.", _HINT)
