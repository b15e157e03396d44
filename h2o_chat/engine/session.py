"""The `session` event: what runs."""

import platform

import torch
import transformers

import h2o_chat
from h2o_chat.cache.quantized import BITS
from h2o_chat.engine.runner import Runner
from h2o_chat.events.events import Session
from h2o_chat.models.fits import slot_bytes


def session_of(runner: Runner, seed: int) -> Session:
    """The event for a conversation in this runner whose sampling has this seed."""
    plan, loaded = runner.cache.plan, runner.loaded
    dtype = str(loaded.precision).removeprefix("torch.")
    kv = next((name for name, bits in BITS.items() if bits == plan.bits), "auto")
    return Session(
        model=loaded.name,
        revision=loaded.revision,
        template="",
        policy=plan.policy.name,
        budget=plan.shares.budget if plan.shares.bounded else None,
        sinks=plan.shares.sinks,
        recent=plan.shares.recent if plan.shares.bounded else 0,
        chunk=plan.chunk,
        prefill=plan.prefill,
        quantization=loaded.quantization,
        dtype=dtype,
        kv_dtype=dtype if kv == "auto" else kv,
        device=loaded.device,
        engine="native" if runner.native else "graph" if runner.graph else "transformers",
        threads=torch.get_num_threads(),
        seed=seed,
        layers=len(runner.trained.ropes),
        kv_heads=loaded.sizes.kv_heads,
        window=runner.trained.window,
        versions={
            "h2o-chat": h2o_chat.__version__,
            # A class of torch's own, which would import torch wherever the event is read.
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        stride=plan.stride,
        engine_why=runner.native.said if runner.native else loaded.why_not_native,
        slot_bytes=slot_bytes(loaded.sizes, loaded.precision.itemsize, kv),
    )
