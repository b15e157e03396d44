"""A token on one GPU beside the floor and beside stock transformers, on random weights of a real shape.

The floor of a token is the bytes of the weights and of the slots over the bandwidth of a copy on this device.
Random weights cost what trained ones do; their greedy text means nothing.
"""

import copy
import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from h2o_chat.base.config import Prefill, Sampling, Settings
from h2o_chat.engine.row import Row
from h2o_chat.engine.runner import Runner, cache_for
from h2o_chat.graph.int4 import Int4
from h2o_chat.graph.loading import LoadedGraph
from h2o_chat.lab.bench.gpu import rows_speed
from h2o_chat.lab.bench.speed import TURN_TOKENS, bandwidth_gb_s
from h2o_chat.lab.bench.timed_programs import GREEDY, TIMED, WARM, Ours, Program, Stock
from h2o_chat.lab.shared.shapes import SHAPES, byte_tokenizer
from h2o_chat.models.load import Loaded
from h2o_chat.native.probing import frame_of
from h2o_chat.transformers_cache import registered

COPY_BYTES = 2 << 30
"""Copied to measure bandwidth: far more than any cache of a device."""

GPU_SHAPES: dict[str, LlamaConfig | Qwen2Config] = {
    "135m": SHAPES["smollm2-135m"],
    "1.5b": Qwen2Config(
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        vocab_size=151_936,
        max_position_embeddings=32_768,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
    ),
    # Llama 2 7B, as transformers defaults to; the window is so large that stock can be fed as much.
    "7b": LlamaConfig(max_position_embeddings=131_072),
    "tiny": LlamaConfig(
        hidden_size=256,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=320,
        max_position_embeddings=4096,
    ),
}


@dataclass(frozen=True)
class GpuRow:
    """One way to decode, at one length of conversation."""

    who: str
    shape: str
    seen_tokens: int
    token_ms: float  # Median time from the token before to the token chosen
    spread_ms: tuple[float, float]  # The tenth and the ninetieth percentile
    tokens_per_s: float
    floor_share: float  # The floor over the time; 0 where it is not told
    device_ms: float = 0.0  # Of a step on the device; the host asks for the next without waiting
    choose_ms: float = 0.0  # From logits that are computed to a token that is read


def random_model(shape: str, device: str, dtype: str, int4: bool, peaked: float) -> LoadedGraph:
    """Random weights of a shape, on a device, as the program would have opened them.

    Args:
        peaked: standard deviation of the query and key matrices times the root of their columns, and what
            layers add divided by the root of their number, so that rounding is not amplified; 0: as
            transformers begins to train, when attention is nearly uniform and who stays is chance.
    """
    torch.manual_seed(0)
    config = copy.deepcopy(GPU_SHAPES[shape])  # transformers notes in it how attention is computed
    usual = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.device(device):
            kind = Qwen2ForCausalLM if isinstance(config, Qwen2Config) else LlamaForCausalLM
            model = kind._from_config(config, attn_implementation=registered.NAME).eval()
    finally:
        torch.set_default_dtype(usual)
    if peaked:
        for layer in model.model.layers:
            for linear in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                torch.nn.init.normal_(linear.weight, std=peaked / linear.in_features**0.5)
            for linear in (layer.self_attn.o_proj, layer.mlp.down_proj):
                linear.weight.data /= (2 * config.num_hidden_layers) ** 0.5
    if int4:
        from h2o_chat.graph.weights import to_int4

        to_int4(model, torch.device(device))
    frame = frame_of(config)
    assert not isinstance(frame, str), frame
    return LoadedGraph(
        model=model,
        tokenizer=byte_tokenizer(),
        name=shape,
        revision=None,
        quantization="int4" if int4 else "none",
        dtype=dtype,
        device=device,
        frame=frame,
    )


def copy_bandwidth(device: str, bytes_: int = COPY_BYTES) -> float:
    """Bytes a second, read and written, of a copy on the device: the median of ten."""
    memory = torch.ones(bytes_ // 4, device=device)
    return 1e9 * statistics.median([bandwidth_gb_s(memory) for _ in range(11)][1:])


def floor_bytes(runner: Runner) -> int:
    """Bytes that a step has to read: the weights but for most of the embedding, and the slots."""
    assert runner.graph is not None
    slots = sum(arena.bytes_held for arena in runner.cache.current_arenas())
    weights = runner.graph.weights
    matrices = [matrix for one in weights.layers for matrix in (one.qkv, one.out, one.gate_up, one.down)]
    return int(weights.head.nbytes + sum(map(matrix_bytes, matrices)) + slots)


def matrix_bytes(matrix: Tensor | Int4) -> int:
    """Bytes of a matrix of weights, with its scales."""
    return matrix.words.nbytes + matrix.scales.nbytes if isinstance(matrix, Int4) else matrix.nbytes


def runner_of(loaded: Loaded, budget: int, **more: Any) -> Runner:
    """An empty one of one row."""
    return Runner(loaded, cache_for(loaded, Settings(budget=budget, **more)))


def read(runner: Runner, tokens: int) -> Tensor:
    """Reads a prompt of so many random tokens; the logits after it."""
    prompt = random_ids(tokens)
    for start in range(0, tokens, runner.call_tokens):
        logits = runner.feed([prompt[start : start + runner.call_tokens]], prompt=True)
    return logits


def decode(
    loaded: Loaded,
    bandwidth: float,
    budget: int,
    seen: int,
    policy: str = "h2o",
    sampling: Sampling = GREEDY,
    barred: int = 0,
) -> GpuRow:
    """Tokens after a prompt of `seen` random ones, through runner and sampler as in a conversation.

    Args:
        barred: tokens that may not come.
    """
    runner = runner_of(loaded, budget, policy=policy)
    row = Row(runner, Settings(seed=0, events_every=0))
    changes, device = dict.fromkeys(range(barred), -math.inf), runner.device.type
    logits, times = read(runner, seen), []
    warm, timed = (WARM, TIMED) if device == "cuda" else (1, 2)
    for number in range(warm + timed):
        began = time.perf_counter()
        token = row.choose(logits[0, -1], sampling, changes, ahead=True)
        logits = runner.feed([[token]], prompt=False)
        if number >= warm:
            times.append(time.perf_counter() - began)
    runner.sync_cache()
    if device == "cuda":
        torch.cuda.synchronize()
    floor = floor_bytes(runner) / bandwidth if runner.graph is not None else 0.0
    device_ms = 0.0
    if device == "cuda" and runner.graph is not None:
        # Feeds the last token again and again: the slots are of no use afterwards.
        replay = runner.graph.replay
        device_ms = _timed(device, lambda: [replay() for _ in range(50)]) * 1e3 / 50
    choose_ms = 1e3 * _best(device, lambda: row.sampler.choose(logits[0, -1], sampling, changes), 20)
    name = f"{policy} {budget}, {loaded.quantization if loaded.quantization != 'none' else loaded.dtype}"
    found = _row(name, loaded.name, seen, times, floor)
    return replace(found, device_ms=device_ms, choose_ms=choose_ms)


def in_turns(loaded: Loaded, budget: int, lengths: Sequence[int], tokens: int = 20) -> dict[int, list[float]]:
    """Milliseconds of tokens after prompts of these lengths, some of each in turns: the speed of the host's
    processor changes by a factor of two from one second to the next."""
    rows, times = list[tuple[int, Row, Tensor]](), dict[int, list[float]]()
    for seen in lengths:
        runner = runner_of(loaded, budget, chunk=budget)
        rows.append((seen, Row(runner, Settings(seed=0, events_every=0)), read(runner, seen)))
    for _ in range(12 if loaded.device == "cuda" else 2):
        for at, (seen, row, logits) in enumerate(rows):
            for number in range(tokens):
                began = time.perf_counter()
                token = row.choose(logits[0, -1], GREEDY, {}, ahead=True)
                logits = row.runner.feed([[token]], prompt=False)
                if number >= tokens // 4:
                    times.setdefault(seen, []).append(1e3 * (time.perf_counter() - began))
            row.runner.sync_cache()
            rows[at] = seen, row, logits
    return times


def stock(loaded: LoadedGraph, seen: int, turns: int = 2, *, compiled: bool = False) -> GpuRow:
    """Stock transformers with its full cache, SDPA attention, on the same weights."""
    runs = Stock(loaded, compiled)
    try:
        runs.read(random_ids(seen))
        runs.decode(TURN_TOKENS)  # warm; compiled in it
        times = [runs.decode(TURN_TOKENS).ms / TURN_TOKENS / 1e3 for _ in range(turns)]
    finally:
        loaded.model.set_attn_implementation("h2o")
        runs.close()
    how = "compiled, static" if compiled else "full"
    return _row(f"transformers, {how}, {loaded.dtype}", loaded.name, seen, times, 0.0)


def stock_rows(loaded: Loaded, seen: int, rows: int, steps: int = 24) -> dict[str, float]:
    """A step of many rows, whose keys and values are random: no prompt is read."""
    model, config = loaded.model, loaded.model.config
    model.set_attn_implementation("sdpa")
    try:
        with torch.inference_mode():
            cache, device = DynamicCache(config=config), loaded.device
            shape = rows, config.num_key_value_heads, seen, config.hidden_size // config.num_attention_heads
            for layer in range(config.num_hidden_layers):
                cache.update(*(torch.randn(shape, dtype=model.dtype, device=device) for _ in range(2)), layer)
            following, times = torch.zeros(rows, 1, dtype=torch.long, device=device), []
            for number in range(steps + 4):
                began = time.perf_counter()
                following = model(input_ids=following, past_key_values=cache).logits[:, -1:].argmax(-1)
                following.tolist()
                if number >= 4:
                    times.append(time.perf_counter() - began)
    finally:
        model.set_attn_implementation("h2o")
    step_ms = 1e3 * statistics.median(times)
    return {"rows": rows, "step_ms": step_ms, "tokens_per_s": rows / statistics.fmean(times)}


def random_ids(count: int) -> list[int]:
    """Tokens of a prompt."""
    found: list[int] = torch.randint(0, 256, (count,), generator=torch.Generator().manual_seed(1)).tolist()
    return found


def first_token(loaded: LoadedGraph, tokens: int, budget: int = 512, chunks: bool = True) -> dict[str, float]:
    """Seconds to the first token after so many of a prompt: in one pass, in chunks where asked for, and in
    stock transformers with flash attention."""
    prompt, found = random_ids(tokens), {}
    ways: tuple[tuple[str, Prefill, int], ...] = (("one pass", "full", 3), ("chunks", "chunked", 1))
    for name, prefill, times in ways[: 1 + chunks]:
        settings = Settings(budget=budget, prefill=prefill, events_every=0)
        runs: Program = Ours(loaded, settings, torch.get_num_threads())
        if prefill == "full":
            runs.read(prompt)
        found[name] = statistics.median(runs.read(prompt).ms for _ in range(times)) / 1e3
        runs.close()
    runs = Stock(loaded)
    try:
        runs.read(prompt)
        found["flash"] = statistics.median(runs.read(prompt).ms for _ in range(3)) / 1e3
    finally:
        loaded.model.set_attn_implementation("h2o")
        runs.close()
    return found


def steps_of(loaded: LoadedGraph, budget: int, rows: int) -> dict[str, float]:
    """Steps of many rows; on a CPU two of them."""
    warm, timed = (WARM, TIMED) if loaded.device.startswith("cuda") else (1, 2)
    return rows_speed(loaded, Settings(budget=budget), rows, warm, timed)


def paper(loaded: LoadedGraph, kv_bytes: int, tokens: int, share: float) -> dict[str, float]:
    """Tokens a second of as many conversations as so many bytes of keys and values hold: `tokens` read, then
    as many written. Stock transformers keeps all of them, this program a share.

    Prompts are read one after the other, and steps are measured at three quarters of the whole length.
    """
    config = loaded.model.config
    size = config.hidden_size // config.num_attention_heads
    token_bytes = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * size
    budget = int(2 * tokens * share)
    ours = kv_bytes // ((budget + 1) * token_bytes) // 8 * 8 or 1
    theirs = kv_bytes // (2 * tokens * token_bytes) or 1
    prompts = first_token(loaded, tokens, budget, chunks=False)
    gc.collect()  # a cache and its layers name each other
    step = steps_of(loaded, budget, ours)
    gc.collect()
    other = stock_rows(loaded, tokens * 3 // 2, theirs)
    found: dict[str, float] = {}
    for name, rows, prompt_s, row in (
        ("ours", ours, prompts["one pass"], step),
        ("stock", theirs, prompts["flash"], other),
    ):
        seconds = rows * prompt_s + tokens * rows / row["tokens_per_s"]
        found |= {f"{name}_rows": rows, name: rows * tokens / seconds, f"{name}_step_ms": row["step_ms"]}
    return found | {"times": found["ours"] / found["stock"]}


def _row(who: str, shape: str, seen: int, times: list[float], floor_s: float) -> GpuRow:
    ordered, median = sorted(times), statistics.median(times)
    low, high = (ordered[int(share * (len(ordered) - 1))] * 1e3 for share in (0.1, 0.9))
    mean = statistics.fmean(times)
    return GpuRow(who, shape, seen, median * 1e3, (low, high), 1 / mean, floor_s / mean)


def _timed(device: str, work: Callable[[], Any]) -> float:
    """Seconds."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _best(device: str, work: Callable[[], Any], times: int = 3) -> float:
    """Seconds, the median after one run that is not counted."""
    _timed(device, work)
    return statistics.median(_timed(device, work) for _ in range(times))


def beside_transformers(loaded: Loaded, budget: int, tokens: int, **more: Any) -> tuple[float, float, float]:
    """The graph step, fed the greedy tokens of transformers' step on the same weights.

    Returns:
        The share of kept (layer, head, token) that both have, the share of steps with the same greedy token,
        and the relative error of the logits.
    """
    exact, graph = (runner_of(loaded, budget, **more) for _ in range(2))
    exact.graph = None  # transformers' step decodes
    generator = torch.Generator().manual_seed(2)
    prompt = torch.randint(0, 256, (budget // 2,), generator=generator).tolist()

    def feed(piece: list[int], is_prompt: bool) -> list[Tensor]:
        return [one.feed([piece], is_prompt)[0, -1].float() for one in (exact, graph)]

    (wanted, found), same, error = feed(prompt, True), 0, 0.0
    for _ in range(tokens):
        token = int(wanted.argmax())
        same += int(found.argmax()) == token
        error += float((found - wanted).norm() / wanted.norm())
        wanted, found = feed([token], False)
    return kept_share(exact, graph), same / tokens, error / tokens


def kept_share(one: Runner, other: Runner) -> float:
    """The share of kept (layer, head, token) that both keep."""
    both = kept = 0
    for layer in range(len(one.cache.layers)):
        mine, theirs = (each.cache.kept(layer)[0].tolist() for each in (one, other))
        for head_mine, head_theirs in zip(mine, theirs, strict=True):
            a, b = ({at for at in head if at >= 0} for head in (head_mine, head_theirs))
            both, kept = both + len(a & b), kept + max(len(a), len(b))
    return both / kept
