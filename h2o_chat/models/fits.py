"""Decides whether a model fits into memory before any weight is read. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2o_chat.base.config import QUANTIZE
from h2o_chat.base.errors import ModelError, OutOfMemoryError
from h2o_chat.cache.state import state_bytes
from h2o_chat.models.aliases import NF4_BYTES
from h2o_chat.models.model_files import StoredWeights, check_weights, read_config

HEADROOM_BYTES = 256 * 2**20
"""Memory beside weights and slots: activations of a prompt chunk, and torch's own."""

FOUR_BITS_FROM = 500_000_000
"""Number of parameters from which on the native step packs a folder in 4 bits."""

QUANTISING_SHARE = 0.1
"""Extra memory while quantising, as a share of the 16-bit weights; it is not returned."""

_KV_BYTES = {"int8": (1.0, 4), "int4": (0.5, 4)}
"""(bytes of a component, bytes of the scale of its row) by precision; see `quantized.py`, which needs
torch."""

_PER_WEIGHT = {"int8": 1.0, "nf4": NF4_BYTES}


@dataclass(frozen=True)
class Sizes:
    layers: int
    hidden: int
    heads: int  # Query heads of a layer
    kv_heads: int
    head_size: int
    vocabulary: int  # Number of tokens: rows of its embedding
    tied: bool  # Whether the output layer shares the embedding's weights


def sizes_of(config: Any) -> Sizes:
    """The sizes in a configuration of transformers. Raises ModelError if it has 0 attention heads."""
    whole, config = config, config.get_text_config()
    layers = config.per_layer_config
    heads = max(one.num_attention_heads for one in layers)
    kv_heads = max(getattr(one, "num_key_value_heads", None) or heads for one in layers)
    if not heads or not kv_heads:
        raise ModelError(
            "The configuration says that there are 0 attention heads: 1 or more are needed.",
            "Fetch it again.",
        )
    head_size = max(getattr(one, "head_dim", None) or config.hidden_size // heads for one in layers)
    if nope := getattr(config, "qk_nope_head_dim", None):  # keys and values are made of latents
        kv_heads, head_size = heads, (nope + config.qk_rope_head_dim + config.v_head_dim + 1) // 2
    return Sizes(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        vocabulary=config.vocab_size,
        tied=getattr(config, "tie_word_embeddings", getattr(whole, "tie_word_embeddings", False)),
    )


@dataclass(frozen=True)
class Need:
    """Bytes that a model needs while it runs."""

    weights: int
    slots: int  # Keys, values and scores of the whole budget
    headroom: int = HEADROOM_BYTES

    @property
    def total(self) -> int:
        return self.weights + self.slots + self.headroom


def estimate(
    sizes: Sizes,
    weights: StoredWeights,
    quantization: str,
    itemsize: int,
    budget: int,
    *,
    as_stored: bool,
    kv: str = "auto",
) -> Need:
    """The memory that a model will need, with numbers of `itemsize` bytes in the computation.

    If keys and values have a precision of their own (`kv`), a layer at a time is converted. `as_stored`: the
    published weights are quantised already.
    """
    slots = (budget + 1) * slot_bytes(sizes, itemsize, kv)
    if kv != "auto":
        slots += (budget + 1) * slot_bytes(sizes, itemsize) // sizes.layers
    if as_stored:
        return Need(weights.bytes, slots)
    if quantization == "none":
        return Need(weights.parameters * itemsize, slots)
    tables = 1 if sizes.tied else 2
    embedding = min(weights.parameters, tables * sizes.vocabulary * sizes.hidden)
    rest = (weights.parameters - embedding) * _PER_WEIGHT[quantization]
    headroom = HEADROOM_BYTES + int(QUANTISING_SHARE * 2 * weights.parameters)
    return Need(embedding * itemsize + int(rest), slots, headroom)


def slot_bytes(
    sizes: Sizes, itemsize: int, kv: str = "auto", shapes: Sequence[tuple[int, int, int, int]] = ()
) -> int:
    """Bytes of one slot in all layers and KV heads.

    `shapes` has (KV heads, query heads of each, components of a key, of a value) of each layer that attends;
    empty: as the configuration says.
    """
    size = sizes.head_size
    shapes = shapes or [(sizes.kv_heads, sizes.heads // sizes.kv_heads, size, size)] * sizes.layers
    return sum(
        heads * (_row_bytes(key, itemsize, kv) + _row_bytes(value, itemsize, kv) + state_bytes(groups))
        for heads, groups, key, value in shapes
    )


LEAST_AUTO, MOST_AUTO = 512, 2048


def auto_budget(folder: Path, machine_bytes: int) -> int:
    """Slots of a conversation for which nobody chose a budget: more of them lose less of a pasted page.

    A power of two from 512 to 2,048, at most the model's window. Its keys and values in fp32 take at most a
    fifth of the bytes that a token reads of the weights (of experts it reads those that it takes), which is
    its time on a CPU, and a sixteenth of the machine's memory. It follows from the model's files and that
    memory alone, so a run can be repeated.

    Raises ModelError if the configuration or the weights cannot be read.
    """
    config, weights = read_config(folder), check_weights(folder)
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    known = [one for one in map(config.get, names) if isinstance(one, int) and one > 0]
    if len(known) < len(names):  # a family with other names
        return LEAST_AUTO
    layers, hidden, heads, vocabulary = known
    head_size = config.get("head_dim") or hidden // heads
    sizes = Sizes(
        layers, hidden, heads, config.get("num_key_value_heads") or heads, head_size, vocabulary, False
    )
    read = (
        weights.held_bytes or weights.parameters * (9 if weights.parameters >= FOUR_BITS_FROM else 17) // 16
    )
    count = config.get("num_experts") or config.get("num_local_experts")
    inner = config.get("moe_intermediate_size") or config.get("intermediate_size")
    match count, config.get("num_experts_per_tok"), inner:
        case int(experts), int(chosen), int(inner) if 0 < chosen <= experts and inner > 0:
            share = min(1.0, layers * experts * 3 * hidden * inner / weights.parameters)
            read = int(read * (1 - share * (1 - chosen / experts)))
    most = min(read // 5, machine_bytes // 16) // slot_bytes(sizes, 4)
    budget, window = LEAST_AUTO, config.get("max_position_embeddings") or LEAST_AUTO
    while 2 * budget <= min(most, window, MOST_AUTO):
        budget *= 2
    return budget


def equal_slots(sizes: Sizes, itemsize: int, kv: str, budget: int) -> int:
    """The budget that takes as many bytes in the precision `kv` as `budget` slots take in `auto`.

    Scales and the one empty slot are included, as in `H2OCache.bytes_held`; rounded down.
    """
    plain, small = (_row_bytes(sizes.head_size, itemsize, how) for how in ("auto", kv))
    return (budget + 1) * plain // small - 1


def _row_bytes(size: int, itemsize: int, kv: str) -> int:
    """Bytes of one key, or value, of one KV head, with its scale."""
    component, scale = _KV_BYTES.get(kv, (itemsize, 0))
    return int(size * component) + scale


def require(name: str, where: str, free: int, chosen: str, needs: dict[str, Need], budget: int) -> None:
    """Raises OutOfMemoryError, with the sum and what would fit, if a model needs more than `free` bytes.

    `needs` is its memory by possible quantisation, and `chosen` one of these.
    """
    need = needs[chosen]
    if need.total <= free:
        return
    raise OutOfMemoryError(
        f"{name} does not fit: it needs {_gb(need.total)} (weights {_gb(need.weights)} as {chosen},"
        f" {budget:,} slots {_gb(need.slots)}, headroom {_gb(need.headroom)}); {where} has {_gb(free)} free.",
        _what_fits(free, chosen, needs, budget),
    )


def _what_fits(free: int, chosen: str, needs: dict[str, Need], budget: int) -> str:
    smaller = sorted((need.total, how) for how, need in needs.items() if need.weights < needs[chosen].weights)
    if fitting := [f"--quantize {how} ({_gb(total)})" for total, how in smaller if total <= free]:
        return f"What would fit: {' or '.join(fitting)}."
    need = min(needs.values(), key=lambda need: need.weights)
    left = free - need.weights - need.headroom
    slots = left * (budget + 1) // need.slots - 1
    if slots >= 64:
        how = next(how for how, one in needs.items() if one is need)
        flag = f"--quantize {how} " if how in QUANTIZE else ""  # a GGUF file keeps its own types
        return f"What would fit: {flag}--budget {min(slots, budget)}."
    return "A smaller model may fit: h2o-chat models list --hub"


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def mb(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
