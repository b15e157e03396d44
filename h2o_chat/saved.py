"""Saved caches: everything that decides how a conversation goes on, in one safetensors file.

The file is of a fixed size however long the conversation: slots, scores, positions, what waits to be fed,
the random state. It is read only by the model, precision, policy and budget that wrote it, and is checked
like anything from outside: whatever is wrong with it, `read` says so, and the caller rebuilds the memory.
"""

import json
import math
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from h2o_chat.cache import Snapshot as CacheSnapshot
from h2o_chat.errors import SavedCacheError
from h2o_chat.events import Session
from h2o_chat.policies import POLICIES, Shares
from h2o_chat.quantized import BITS, dequantise, row_bytes
from h2o_chat.rope import MOST_TOKENS
from h2o_chat.slots import H2OLayer

FORMAT = 5
"""Of the file; another one is not read."""

IDENTITY = (
    "model",
    "revision",
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
"""Fields of `Session` that must be what they were."""

_PER_SLOT = {
    "positions": torch.int32,
    "score": None,  # fp32, fp64 in an fp64 model
    "receiving": None,
    "unlike": None,
    "alone": None,
    "given": torch.bool,
    "protected": torch.bool,
    "far": torch.bool,
}
_PER_ROW = {"seen": torch.int32, "base": torch.int32, "lost": torch.float64}


@dataclass(frozen=True)
class Snapshot:
    """Everything that decides how a conversation goes on."""

    cache: CacheSnapshot
    pending: tuple[int, ...]
    """Sampled, not fed yet."""
    random: Tensor
    """State of the generator that tokens are drawn with, [bytes] uint8."""
    history: tuple[int, ...]
    """Newest tokens, for the repetition penalty."""
    texts: dict[int, int]
    """Token ids by position, of tokens that are held."""
    lost: tuple[int, float]
    """`Observer.lost_mark` at the last `CacheState`."""


def write(path: Path, snapshot: Snapshot, session: Session) -> None:
    """Writes a snapshot in one move: whoever reads sees the old file or the new one.

    Raises:
        OSError: no room, no right to write there.
    """
    cache = snapshot.cache
    tensors = {
        f"{index}.{name}": tensor.contiguous().cpu()
        for index, state in enumerate(cache.layers)
        for name, tensor in state.items()
    }
    tensors["random"] = snapshot.random
    tensors["pending"] = torch.tensor(snapshot.pending, dtype=torch.long)
    tensors["history"] = torch.tensor(snapshot.history, dtype=torch.long)
    tensors["texts"] = torch.tensor([*snapshot.texts.items()], dtype=torch.long).reshape(-1, 2)
    about = {
        "format": FORMAT,
        "session": {name: getattr(session, name) for name in IDENTITY},
        "fed": cache.fed,
        "near_from": cache.near_from,
        "rebase_due": cache.rebase_due,
        "ragged": cache.ragged,
        "protect_below": cache.protect_below,
        "pins": sorted(cache.pins),
        "any_far": cache.any_far,
        "lost": snapshot.lost,
        "checks": {name: _check(tensor) for name, tensor in tensors.items()},
    }
    part = path.with_name(path.name + ".part")
    try:
        part.unlink(missing_ok=True)  # of a process that was killed; or a link, which is not followed
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


def read(
    path: Path, session: Session, device: torch.device, head_size: int, groups: int, vocabulary: int
) -> Snapshot:
    """What `write` wrote, on `device`.

    Args:
        session: of the engine that will go on.
        head_size: D of its keys.
        groups: G, query heads per KV head.
        vocabulary: token ids lie below.

    Raises:
        SavedCacheError: it is not there, damaged, of another format, or of another model or memory.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = _about(file.metadata(), session)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        damaged = [name for name, tensor in tensors.items() if _check(tensor) != about["checks"][name]]
        if damaged:
            raise _Wrong(f"{damaged[0]} is damaged")
        return _snapshot(about, tensors, session, device, head_size, groups, vocabulary)
    except FileNotFoundError as error:
        raise SavedCacheError("There is no saved memory.") from error
    except (OSError, _Wrong) as error:
        what = error.strerror or error if isinstance(error, OSError) else error
        raise SavedCacheError(f"The saved memory {path.name} cannot be used: {what}.") from error
    except (SafetensorError, RecursionError, KeyError, TypeError, ValueError) as error:
        raise SavedCacheError(f"The saved memory {path.name} is damaged.") from error


class _Wrong(Exception):
    """What is wrong with a file."""


def _check(tensor: Tensor) -> int:
    """CRC-32 of its bytes: against damage; against what is made up, every value is checked besides."""
    return zlib.crc32(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def _about(metadata: dict[str, str] | None, session: Session) -> dict[str, Any]:
    """The description in a file's header, if it is one that this session can go on with."""
    about = json.loads((metadata or {}).get("h2o-chat", "null"))
    if not isinstance(about, dict):
        raise _Wrong("it is no saved memory of h2o-chat")
    if about.get("format") != FORMAT:
        raise _Wrong(f"its format is {_seen(about.get('format'))}, this version reads {FORMAT}")
    if not isinstance(about["session"], dict) or not isinstance(about["checks"], dict):
        raise _Wrong("its description is damaged")
    for name in IDENTITY:
        was, now = about["session"].get(name), getattr(session, name)
        if was != now:
            raise _Wrong(f"its {name} was {_seen(was)}, now it is {now}")
    return about


def _snapshot(
    about: dict[str, Any],
    tensors: dict[str, Tensor],
    session: Session,
    device: torch.device,
    head_size: int,
    groups: int,
    vocabulary: int,
) -> Snapshot:
    """What the tensors of a file say, checked.

    Raises:
        _Wrong, KeyError, TypeError, ValueError: that is nothing.
    """
    fed = _count(about["fed"])
    layers = len(tensors) // len(H2OLayer.STATE)
    if layers not in (0, session.layers):
        raise _Wrong(f"it holds {layers} layers of {session.layers}")
    states = [
        {name: tensors[f"{index}.{name}"] for name in H2OLayer.STATE} for index in range(layers if fed else 0)
    ]
    for state in states:
        _check_layer(state, session, head_size, groups, fed)
    ids = {name: tensors[name] for name in ("pending", "history", "texts")}
    for name, tensor in ids.items():
        if tensor.dtype != torch.long or tensor.ndim != (2 if name == "texts" else 1):
            raise _Wrong(f"{name} is not a list of tokens")
        tokens = tensor[:, 1] if name == "texts" else tensor
        if bool(((tokens < 0) | (tokens >= vocabulary)).any()):
            raise _Wrong(f"{name} holds what is no token")
    lost_at, lost = about["lost"]
    if not isinstance(lost, float) or not math.isfinite(lost):
        raise _Wrong("what it lost is no number")
    any_far = about["any_far"]
    if not isinstance(any_far, list) or (states and len(any_far) != len(states)):
        raise _Wrong("it does not say of every layer whether keys stand at the edge")
    return Snapshot(
        cache=CacheSnapshot(
            policy=session.policy,
            shares=None if session.budget is None else Shares(session.budget, session.sinks, session.recent),
            layers=[{name: tensor.to(device) for name, tensor in state.items()} for state in states],
            fed=fed,
            near_from=_count(about["near_from"]),
            rebase_due=_count(about["rebase_due"]),
            ragged=bool(about["ragged"]),
            protect_below=_count(about["protect_below"]),
            bits=BITS.get(session.kv_dtype),
            dtype=getattr(torch, session.dtype),
            pins=_pins(about["pins"]),
            any_far=[bool(far) for far in any_far],
        ),
        pending=tuple(ids["pending"].tolist()),
        random=_random(tensors["random"], device),
        history=tuple(ids["history"].tolist()),
        texts=dict(ids["texts"].tolist()),
        lost=(_count(lost_at), lost),
    )


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < MOST_TOKENS:
        raise _Wrong(f"{_seen(value)} is no count")
    return value


def _pins(value: Any) -> frozenset[int]:
    """Positions."""
    if not isinstance(value, list):
        raise _Wrong(f"{_seen(value)} are no pins")
    return frozenset(_count(position) for position in value)


def _random(state: Tensor, device: torch.device) -> Tensor:
    """The state of a generator, if one takes it."""
    try:
        torch.Generator(device).set_state(state)
    except (RuntimeError, TypeError) as error:
        raise _Wrong("its random state is none") from error
    return state


def _seen(value: Any) -> str:
    """A value of a header, which may be anything, for an error."""
    return ascii(value)[:60]


def _check_layer(state: dict[str, Tensor], session: Session, head_size: int, groups: int, fed: int) -> None:
    """Shapes, types and ranges, so that nothing in a file can index outside a tensor."""
    slots = state["positions"].shape[-1] if session.budget is None else session.budget + 1
    exact = torch.float64 if session.dtype == "float64" else torch.float32
    per_slot = (1, session.kv_heads, slots)
    kinds: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    kinds |= {name: (per_slot, kind or exact) for name, kind in _PER_SLOT.items()}
    kinds |= {name: ((1,), kind) for name, kind in _PER_ROW.items()}
    kinds["mean_key"] = ((1, session.kv_heads, head_size), exact)
    kinds["by_head"] = ((*per_slot, groups if POLICIES[session.policy].by_head else 0), exact)
    kinds["free"] = ((1, session.kv_heads), torch.long)
    bits, dtype = BITS.get(session.kv_dtype), getattr(torch, session.dtype)
    kinds["keys"] = kinds["values"] = (
        ((*per_slot, head_size), dtype)
        if bits is None
        else ((*per_slot, row_bytes(head_size, bits)), torch.uint8)
    )
    for name, (shape, kind) in kinds.items():
        tensor = state[name]
        if tuple(tensor.shape) != shape or tensor.dtype != kind:
            raise _Wrong(f"{name} is {tuple(tensor.shape)} {tensor.dtype}, not {shape} {kind}")
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise _Wrong(f"{name} holds what is no number")
        if (
            tensor.dtype == torch.uint8
            and bits
            and not bool(dequantise(tensor, bits, dtype).isfinite().all())
        ):
            raise _Wrong(f"{name} holds what is no number")
    positions, free, seen, base = (state[name] for name in ("positions", "free", "seen", "base"))
    inside = bool((positions >= -1).all() and (positions < fed).all() and (seen == fed).all())
    if not (inside and bool((base >= 0).all()) and bool((base <= fed).all())):
        raise _Wrong("its positions are not those of the tokens fed")
    if slots <= fed and session.budget is None:
        raise _Wrong(f"it has {slots} slots for {fed} tokens")
    if bool(((free < 0) | (free >= slots)).any()) or bool((positions.gather(-1, free[..., None]) >= 0).any()):
        raise _Wrong("the next slot to be written is not empty")
