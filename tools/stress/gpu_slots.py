"""For `gpu_check.py`: the graph step beside transformers', slots in bytes, weights in main memory."""

import copy
from dataclasses import replace
from typing import Any

import torch
from gpu_bench import runner_of, stock_rows
from torch import Tensor

from h2o_chat.base.config import Settings
from h2o_chat.engine.runner import Runner
from h2o_chat.lab.timed_programs import rows_speed
from h2o_chat.models.choices import pin_offloaded
from h2o_chat.models.load import Loaded


def compared(runners: dict[str, Runner], prompt_tokens: int, tokens: int, seed: int = 2) -> dict[str, Any]:
    """Runners that are fed the greedy tokens of the first one.

    Returns:
        By name, for all but the first: the share of kept (layer, head, token) that it has in common with the
        first, the share of steps with the same greedy token, and the relative error of its logits.
    """
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(0, 256, (prompt_tokens,), generator=generator).tolist()
    first, *others = runners.values()
    same, error = (dict.fromkeys(runners, 0.0) for _ in range(2))

    def feed(piece: list[int], is_prompt: bool) -> dict[str, Tensor]:
        return {name: one.feed([piece], is_prompt)[0, -1].float() for name, one in runners.items()}

    logits = feed(prompt, True)
    for _ in range(tokens):
        exact = next(iter(logits.values()))
        token = int(exact.argmax())
        for name, found in logits.items():
            same[name] += int(found.argmax()) == token
            error[name] += float((found - exact).norm() / exact.norm()) / tokens
        logits = feed([token], False)
    kept = [kept_share(first, other) for other in others]
    names = list(runners)[1:]
    return {name: (share, same[name] / tokens, error[name]) for name, share in zip(names, kept, strict=True)}


def kept_share(one: Runner, other: Runner) -> float:
    """The share of kept (layer, head, token) that both keep."""
    both = kept = 0
    for layer in range(len(one.cache.layers)):
        mine, theirs = (each.cache.kept(layer)[0].tolist() for each in (one, other))
        for head_mine, head_theirs in zip(mine, theirs, strict=True):
            a, b = ({at for at in head if at >= 0} for head in (head_mine, head_theirs))
            both, kept = both + len(a & b), kept + max(len(a), len(b))
    return both / kept


def plain(runner: Runner) -> Runner:
    """The runner, in which transformers' step decodes."""
    runner.graph = None
    return runner


def beside_transformers(loaded: Any, budget: int, tokens: int, **more: Any) -> Any:
    """The graph step compared with transformers' step, on the same weights."""
    runners = {"transformers": plain(runner_of(loaded, budget, **more))}
    runners["graph"] = runner_of(loaded, budget, **more)
    return compared(runners, budget // 2, tokens)["graph"]


def beside_fp32(loaded: Any, budget: int, tokens: int, seed: int = 2) -> dict[str, Any]:
    """The graph step and transformers' step in bf16, each compared with the same weights in fp32."""
    exact = replace(loaded, model=copy.deepcopy(loaded.model).float(), dtype="float32")
    runners = {"fp32": plain(runner_of(exact, budget))}
    runners |= {"graph": runner_of(loaded, budget), "transformers": plain(runner_of(loaded, budget))}
    found = compared(runners, budget // 2, tokens, seed)
    found["each other"] = (kept_share(runners["graph"], runners["transformers"]), 0.0, 0.0)
    return found


def offloaded(model: Any, device: str, bytes_: int) -> float:
    """Moves all weights but so many bytes to main memory by accelerate's map; returns the bytes moved."""
    from accelerate import cpu_offload, dispatch_model, infer_auto_device_map

    model.to("cpu")
    if device == "cpu":
        cpu_offload(model, execution_device=torch.device("cpu"))
    else:
        torch.cuda.empty_cache()
        kinds = [type(model.model.layers[0]).__name__]
        limits = {0: bytes_, "cpu": 64 << 30}
        there = infer_auto_device_map(
            model, max_memory=limits, no_split_module_classes=kinds, dtype=model.dtype
        )
        dispatch_model(model, there, skip_keys="past_key_values")
    return float(sum(one.nbytes for one in model.parameters() if one.device.type == "meta"))


def ours_ms(loaded: Loaded, budget: int, rows: int, tokens: int, kv: Any = "auto") -> float:
    """Milliseconds of a step of rows with full caches: the median of some."""
    return rows_speed(loaded, Settings(budget=budget, kv_dtype=kv), rows, 1, tokens)["step_ms"]


def offload_figures(loaded: Any, device: str, small: bool) -> dict[str, float]:
    """Milliseconds a step with most weights in main memory: one row at 512 slots, then as many rows as 24 GiB
    of keys and values hold of 2,048 + 2,048 tokens, at three quarters of them (`gpu_bench.paper`)."""
    moved = offloaded(loaded.model, device, 6 << 30)
    as_plain = Loaded(loaded.model, loaded.tokenizer, loaded.name, None, "none", loaded.dtype, loaded.device)
    budget, rows, tokens = (24, (2, 1), 2) if small else (512, (56, 12), 3)

    def stock_ms(seen: int, rows: int) -> float:
        return stock_rows(as_plain, seen, rows, tokens)["step_ms"]

    found = {"GB moved": moved / 1e9, "stock": stock_ms(budget, 1)}
    if device != "cpu":
        pin_offloaded(loaded.model)
        found["stock, locked"] = stock_ms(budget, 1)
    found["ours"] = ours_ms(as_plain, budget, 1, tokens)
    share, longest = (24, 30) if small else (819, 3072)
    found[f"ours, {rows[0]} rows"] = ours_ms(as_plain, share, rows[0], tokens)
    torch.cuda.empty_cache()
    found[f"stock, {rows[1]} rows"] = stock_ms(longest, rows[1])
    return found
