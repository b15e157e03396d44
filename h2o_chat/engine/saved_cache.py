"""Saved caches: everything that decides how a conversation goes on, in one safetensors file.

The file has a fixed size however long the conversation: slots, scores, positions, pending tokens, the random
state. Until something is evicted, the empty slots behind the last token are left out. It is read only by the
model, precision, policy and budget that wrote it, and is checked like anything from outside: `read` says what
is wrong with it, and the caller rebuilds the cache.
"""

import json
import math
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from h2o_chat.base.errors import SavedCacheError
from h2o_chat.cache.arena import SavedArena, Shape
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.quantized import BITS, dequantise
from h2o_chat.cache.rope import Positions
from h2o_chat.cache.state import STATES
from h2o_chat.engine.saved_formats import MIGRATIONS, Wrong, count, seen
from h2o_chat.events.events import Session
from h2o_chat.models.fits import Sizes
from h2o_chat.policies.references import named
from h2o_chat.policies.shares import BOUNDLESS, Shares
from h2o_chat.transformers_cache.snapshot import Snapshot as CacheSnapshot

_FORMAT = 7  # of the file; `MIGRATIONS` convert older ones; with any other the cache is rebuilt

_FIRST_STATES = {*("keys", "values", "positions", "score", "lately"), *("prompt", "protected", "clamped")}
"""States that every file has. A later state may be missing: it begins with its empty value."""

IDENTITY = (
    "model",
    "revision",
    "engine",
    "quantization",
    "dtype",
    "kv_dtype",
    "device",
    "policy",
    "budget",
    "sinks",
    "recent",
    "layers",
    "kv_heads",
    "window",
)
"""Fields of `Session` that must be equal."""

_BEFORE = {"engine": "transformers"}  # values of files from before there was a choice

_COUNTS = {"seen": "seen", "in_use": "in_use", "base": "rope_origin", "near_from": "clamped_below"}
"""Counts of a `Clock`, by their names in a file."""


@dataclass(frozen=True)
class RowSnapshot:
    """Everything that decides how a conversation goes on."""

    cache: CacheSnapshot
    pending: tuple[int, ...]  # sampled, not fed yet
    random: Tensor  # state of the random generator, [bytes] uint8
    history: tuple[int, ...]  # newest tokens, for the repetition penalty
    texts: dict[int, int]  # token ids by position, of held tokens
    lost: tuple[int, float]  # `Observer.lost_mark` at the last `CacheState`
    about: Any = None  # JSON of the caller; `read` does not check it


def write(path: Path, snapshot: RowSnapshot, session: Session) -> None:
    """Writes a snapshot in one move: a reader sees the old file or the new one.

    Raises:
        OSError: no room, no right to write there.
    """
    cache = snapshot.cache
    clock = cache.clocks[0] if cache.clocks else cache.fresh
    short = session.budget is not None and clock.in_use == clock.seen  # tokens stand in its first slots
    tensors = {
        f"{number}.{name}": state[:, :, :, : clock.seen + 1 if short else None].contiguous().cpu()
        for number, part in enumerate(cache.parts)
        for name, state in part.states.items()
    }
    tensors |= {f"{number}.lost": part.lost.cpu() for number, part in enumerate(cache.parts)}
    for number, held in enumerate(cache.states):
        tensors |= {f"state.{number}.{name}": state.contiguous().cpu() for name, state in held.items()}
    tensors["random"] = snapshot.random
    tensors["pending"] = torch.tensor(snapshot.pending, dtype=torch.long)
    tensors["history"] = torch.tensor(snapshot.history, dtype=torch.long)
    tensors["texts"] = torch.tensor([*snapshot.texts.items()], dtype=torch.long).reshape(-1, 2)
    about = {
        "format": _FORMAT,
        "session": {name: getattr(session, name) for name in IDENTITY},
        "fed": cache.fed,
        "protect_below": clock.protect_below,
        "pins": sorted(clock.pins),
        "parts": [list(part.layers) for part in cache.parts],
        "clock": {name: getattr(clock, of) for name, of in _COUNTS.items()} if cache.clocks else None,
        "lost": snapshot.lost,
        "about": snapshot.about,
        "checks": {name: _check(tensor) for name, tensor in tensors.items()},
    }
    part = path.with_name(path.name + ".part")
    try:
        part.unlink(missing_ok=True)  # left by a killed process; or a link, which is not followed
        part.touch(mode=0o600, exist_ok=False)
        save_file(tensors, part, metadata={"h2o-chat": json.dumps(about)})
        part.chmod(0o600)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except SafetensorError as error:  # a full disk arrives as one of these
        raise OSError(f"{path} cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)


@dataclass(frozen=True)
class CacheReader:
    """The engine that will use a saved cache."""

    session: Session
    device: torch.device
    sizes: Sizes
    trained: Positions

    @property
    def groups(self) -> int:
        """G, query heads per KV head."""
        return self.sizes.heads // self.session.kv_heads

    def shape(self, layers: list[int]) -> tuple[int, int, int, int]:
        """`Kind.shape` of the layers of one arena."""
        if not self.trained.shapes:
            return self.session.kv_heads, self.groups, self.sizes.head_size, self.sizes.head_size
        first, *others = {self.trained.shapes[layer] for layer in layers}
        if others:
            raise Wrong(f"it holds the layers {layers} together, whose shapes differ")
        return first


def read(path: Path, by: CacheReader) -> RowSnapshot:
    """The snapshot in a file, on the reader's device.

    Raises:
        SavedCacheError: it is not there, damaged, of another format, or of another model or memory.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = _about(file.metadata(), by.session)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        damaged = [name for name, tensor in tensors.items() if _check(tensor) != about["checks"][name]]
        if damaged:
            raise Wrong(f"{damaged[0]} is damaged")
        while about["format"] != _FORMAT:
            about, tensors = MIGRATIONS[about["format"]](about, tensors, by.groups)
        return _snapshot(about, tensors, by)
    except FileNotFoundError as error:
        raise SavedCacheError("There is no saved memory.") from error
    except (OSError, Wrong) as error:
        what = error.strerror or error if isinstance(error, OSError) else error
        raise SavedCacheError(f"The saved memory {path.name} cannot be used: {what}.") from error
    except (SafetensorError, RecursionError, LookupError, TypeError, ValueError) as error:
        raise SavedCacheError(f"The saved memory {path.name} is damaged.") from error


def _check(tensor: Tensor) -> int:
    """CRC-32 of its bytes, against damage; every value is checked too, against forgery."""
    return zlib.crc32(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def _about(metadata: dict[str, str] | None, session: Session) -> dict[str, Any]:
    """The description in a file's header, if this session can use it."""
    about = json.loads((metadata or {}).get("h2o-chat", "null"))
    if not isinstance(about, dict):
        raise Wrong("it is no saved memory of h2o-chat")
    if type(about.get("format")) is not int or about["format"] not in (_FORMAT, *MIGRATIONS):
        known = ", ".join(map(str, (*MIGRATIONS, _FORMAT)))
        raise Wrong(f"its format is {seen(about.get('format'))}, this version reads {known}")
    if not isinstance(about["session"], dict) or not isinstance(about["checks"], dict):
        raise Wrong("its description is damaged")
    for name in IDENTITY:
        was, now = about["session"].get(name, _BEFORE.get(name)), getattr(session, name)
        if was != now:
            raise Wrong(f"its {name} was {seen(was)}, now it is {now}")
    return about


def _snapshot(about: dict[str, Any], tensors: dict[str, Tensor], by: CacheReader) -> RowSnapshot:
    """The checked snapshot in the tensors of a file; raises Wrong, LookupError, TypeError or ValueError."""
    fed, session = count(about["fed"]), by.session
    protect_below, pins = count(about["protect_below"]), about["pins"]
    if not isinstance(pins, list):
        raise Wrong(f"{seen(pins)} are no pins")
    fresh = Clock(protect_below=protect_below, pins=frozenset(map(count, pins)))
    if fresh.pins and min(fresh.pins) < fed:
        raise Wrong(f"it pins token {min(fresh.pins)} as one to come, and {fed} were fed")
    clocks = [_clock(about["clock"], fed, fresh, by.trained)] if fed else []
    parts = [
        _part(number, layers, tensors, by, clock)
        for clock in clocks
        for number, layers in enumerate(_layers(about["parts"], session))
    ]
    held = max((int((part.states["positions"] >= 0).sum(-1).max()) for part in parts), default=0)
    if clocks and clocks[0].in_use != held:
        raise Wrong(f"it says that it holds {clocks[0].in_use} tokens, and holds {held}")
    ids = {name: tensors[name] for name in ("pending", "history", "texts")}
    for name, tensor in ids.items():
        if tensor.dtype != torch.long or tensor.shape[1:] != ((2,) if name == "texts" else ()):
            raise Wrong(f"{name} is not a list of tokens")
        tokens = tensor[:, 1] if name == "texts" else tensor
        if bool(((tokens < 0) | (tokens >= by.sizes.vocabulary)).any()):
            raise Wrong(f"{name} holds what is no token")
    lost_at, lost = about["lost"]
    if not isinstance(lost, float) or not math.isfinite(lost):
        raise Wrong("what it lost is no number")
    return RowSnapshot(
        cache=CacheSnapshot(
            policy=session.policy,
            shares=BOUNDLESS
            if session.budget is None
            else Shares(session.budget, session.sinks, session.recent),
            bits=BITS.get(session.kv_dtype),
            parts=parts,
            clocks=clocks,
            fresh=fresh,
            fed=fed,
            states=_states(tensors, by) if fed else [],
        ),
        pending=tuple(ids["pending"].tolist()),
        random=_random(tensors["random"]),
        history=tuple(ids["history"].tolist()),
        texts=dict(ids["texts"].tolist()),
        lost=(count(lost_at), lost),
        about=about.get("about"),
    )


def _random(state: Tensor) -> Tensor:
    """The state of a generator, if a generator accepts it."""
    try:
        torch.Generator().set_state(state)
    except (RuntimeError, TypeError) as error:
        raise Wrong("its random state is none") from error
    return state


def _layers(value: Any, session: Session) -> list[list[int]]:
    listed = sorted(count(layer) for part in value for layer in part)
    if listed != list(range(session.layers)) or any(part != sorted(part) for part in value):
        raise Wrong(f"it holds the layers {seen(value)} of {session.layers}")
    return list(value)


def _clock(value: Any, fed: int, fresh: Clock, trained: Positions) -> Clock:
    counts: dict[str, Any] = {of: count(value[name]) for name, of in _COUNTS.items()}
    clock = replace(fresh, **counts)
    many = max(clock.in_use, clock.rope_origin, clock.clamped_below - trained.window) > fed
    few = not trained.learned and clock.rope_origin < fed - trained.window
    if clock.seen != fed or many or few:
        raise Wrong(f"its counts {seen(value)} are not those of {fed} tokens")
    return clock


def _part(
    number: int, layers: list[int], tensors: dict[str, Tensor], by: CacheReader, clock: Clock
) -> SavedArena:
    """The states of one arena, checked: shapes, types, ranges; no value may index outside a tensor."""
    session, fed = by.session, clock.seen
    dtype, bits = getattr(torch, session.dtype), BITS.get(session.kv_dtype)
    heads, groups, key, value = by.shape(layers)
    of = Shape(1, heads, groups, key, value, dtype, by.device)
    width = named(session.policy).scores.width(groups)
    written = tensors[f"{number}.positions"].shape[-1]
    slots = written if session.budget is None else session.budget + 1
    if not (written == slots or (written == fed + 1 < slots and clock.in_use == fed)):
        raise Wrong(f"it has {written} slots, not {slots}")
    states = {}
    for state in STATES:
        more, kind = of.kind(state, width, bits)
        shape = (len(layers), 1, heads, written, *more)
        tensor = tensors.get(f"{number}.{state.name}")
        if tensor is None:  # a state that came later than the file
            if state.name in _FIRST_STATES:
                raise Wrong(f"it has no {state.name}")
            tensor = torch.full(shape, state.empty, dtype=kind)
        _check_tensor(state.name, tensor, shape, kind)
        if kind == torch.uint8 and bits and not bool(dequantise(tensor, bits, dtype).isfinite().all()):
            raise Wrong(f"{state.name} holds what is no number")
        empty = torch.full((*shape[:3], slots - written, *more), state.empty, dtype=kind)
        states[state.name] = torch.cat((tensor, empty), 3) if written < slots else tensor
    lost = tensors[f"{number}.lost"]
    _check_tensor("lost", lost, (1,), torch.float64)
    positions = states["positions"]
    if not bool(((positions >= -1) & (positions < fed)).all()):
        raise Wrong("its positions are not those of the tokens fed")
    window, turned = by.trained.window, [by.trained.ropes[layer] is not None for layer in layers]
    near = positions[turned][(positions[turned] >= 0) & ~states["clamped"][turned]]  # met where they stood
    if bool((((near - clock.rope_origin).abs() > window) | (near < clock.clamped_below - window)).any()):
        raise Wrong("a key stands outside of the model's window, and is not clamped")
    held = (positions >= 0).sum(-1)
    if session.budget is not None and bool((held > session.budget).any()):
        raise Wrong(f"it holds {int(held.max())} tokens in {session.budget} slots")
    if clock.in_use == fed and bool((positions[..., fed:] >= 0).any()):
        raise Wrong("nothing was given up, and its tokens do not stand in its first slots")
    if session.budget is None and slots <= fed:
        raise Wrong(f"it has {slots} slots for {fed} tokens")
    moved = {name: tensor.to(by.device) for name, tensor in states.items()}
    return SavedArena(tuple(layers), of, moved, lost.to(by.device))


def _states(tensors: dict[str, Tensor], by: CacheReader) -> list[dict[str, Tensor]]:
    """The checked states of layers without keys: the shapes and types that the model was seen to have."""
    found = []
    for number, kind in enumerate(kind for kind in by.trained.layers if kind.keeps_state):
        names = [f"state.{number}.{name}" for name in kind.held]
        for name, (shape, dtype) in zip(names, kind.held.values(), strict=True):
            _check_tensor(name, tensors[name], (1, *shape), dtype)
        found.append({name: tensors[full].to(by.device) for full, name in zip(names, kind.held, strict=True)})
    return found


def _check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], kind: torch.dtype) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype != kind:
        raise Wrong(f"{name} is {tuple(tensor.shape)} {tensor.dtype}, not {shape} {kind}")
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise Wrong(f"{name} holds what is no number")
