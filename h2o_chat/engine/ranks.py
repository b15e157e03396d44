"""One model over the processes of `torchrun`: transformers splits it, and each rank has its own KV heads.

Rank 0 runs the program, the others do what it calls. Each feeds a cache of its own KV heads. Whoever reads,
saves or changes the memory has rank 0's cache of all heads: pulled for it, and pushed before the next token.
"""

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd
from typing import Any, NoReturn, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import EngineError, ExitCode, H2OChatError, ModelError, UsageError
from h2o_chat.base.progress import Progress
from h2o_chat.base.system import ENDING
from h2o_chat.cache.arena import SavedArena
from h2o_chat.engine.runner import Runner, cache_for, trained_positions
from h2o_chat.graph.loading import open_model
from h2o_chat.models.choices import default_threads
from h2o_chat.models.load import Loaded, check_family
from h2o_chat.models.resolve import find
from h2o_chat.transformers_cache.layout import kinds_of
from h2o_chat.transformers_cache.snapshot import Snapshot


class Rank:
    """This process among those of torchrun."""

    here: "Rank"

    def __init__(self) -> None:
        Rank.here = self
        self.store, self.number, self.count = next(rendezvous("env://"))
        dist.init_process_group()
        self.leave, self.died = dist.destroy_process_group, EngineError("The ranks have parted.")
        self.progress: Progress = lambda *_: None
        if self.number == 0:
            atexit.register(lambda: dist.is_initialized() and self.call("leave"))

    def end(self, work: Callable[[], int]) -> NoReturn:
        """Ends this process with the exit code of `work`, without Python's own shutdown.

        One of gloo's threads may still have a tensor to free, and would abort the process there.
        """
        try:
            code: Any = work()
        except SystemExit as ended:
            code = ended.code
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)

    def follow(self) -> ExitCode:
        """Does what rank 0 calls, until that leaves."""
        for ending in ENDING:  # rank 0 ends in order, and this one after it
            signal.signal(ending, signal.SIG_IGN)
        while dist.is_initialized():
            try:
                self.call()
            except EngineError:
                raise
            except H2OChatError:  # nothing was fed, and rank 0 says it
                continue
        return ExitCode.OK

    def call(self, name: str = "", *values: Any) -> Any:
        """Runs a method on all ranks; rank 0 says which, the others wait here. EngineError: one has died."""
        if not dist.is_initialized():
            raise self.died
        try:
            said = [(name, values)]
            dist.broadcast_object_list(said)
            return getattr(self, said[0][0])(*said[0][1])
        except (RuntimeError, ModelError) as error:
            if not isinstance(error.__cause__ or error, RuntimeError):  # `blamed_on_the_model`
                raise
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends all as soon as one has died
            self.leave()  # all that live notice it, and give a sign, too
            self.store.set(f"alive {self.number}", "")
            time.sleep(1.5)
            dead = [str(rank) for rank in range(self.count) if not self.store.check([f"alive {rank}"])]
            if not dead:
                raise
            hint = "See what it said last (often memory), and start torchrun again."
            self.died = EngineError(f"Rank {', '.join(dead)} of {self.count} has died.", hint)
            raise self.died from error

    def open(self, settings: Settings) -> Loaded:
        loaded = open_model(settings, self.progress)
        mine = trained_positions(loaded)
        # 1 where transformers gives all KV heads to every rank (OLMo 2, whose norm needs all of them).
        self.shares = loaded.sizes.kv_heads // max(heads for heads, *_ in mine.shapes)
        kinds = [replace(one, shape=(one.shape[0] * self.shares, *one.shape[1:])) for one in mine.layers]
        self.runner = Runner(loaded, cache_for(loaded, settings, replace(mine, layers=tuple(kinds))))
        self.feed = self.runner.feed
        return replace(loaded, why_not_native=f"it is split over {self.count} ranks")

    def push(self, whole: Snapshot) -> None:
        self.runner.put(0, heads_of([whole], self.number % self.shares, self.shares, self.runner.device))

    def pull(self) -> Snapshot | None:
        mine = heads_of([self.runner.row_snapshot(0, copy=False)], 0, 1, torch.device("cpu"))
        shares: list[Any] | None = None if self.number else [None] * self.count
        dist.gather_object(mine, shares)
        return heads_of(shares[: self.shares], 0, 1, self.runner.device) if shares else None


def heads_of(shares: Sequence[Snapshot], number: int, of: int, device: torch.device) -> Snapshot:
    """A copy of one of `of` equal parts of the KV heads of all shares."""
    parts = []
    for some in zip(*(one.parts for one in shares), strict=True):
        together = {name: torch.cat([one.states[name] for one in some], 2) for name in some[0].states}
        states = {name: state.chunk(of, 2)[number].to(device) for name, state in together.items()}
        lost = torch.stack([one.lost for one in some]).sum(0).to(device) * (number == 0)
        shape = replace(some[0].shape, heads=states["positions"].shape[2], device=device)
        parts.append(SavedArena(some[0].layers, shape, states, lost))
    return replace(shares[0], parts=parts)


class RankedRunner(Runner):
    """Rank 0's runner of one row, whose cache has the KV heads of all ranks."""

    def __init__(self, loaded: Loaded, settings: Settings) -> None:
        self.own = Rank.here.runner
        super().__init__(loaded, cache_for(loaded, settings, self.own.trained))

    def sync_cache(self) -> None:
        """Puts the cache together, for whoever reads or changes it."""
        if self.cache.clocks is self.own.cache.clocks:  # as `feed` has left it
            self.cache.restore(Rank.here.call("pull"), hand_over=True)

    def feed(self, pieces: Sequence[Sequence[int]], prompt: bool, **_: Any) -> Tensor:
        """See `Runner.feed`; what has begun is not cancelled, since all ranks end it together."""
        if self.cache.clocks is not self.own.cache.clocks:
            Rank.here.call("push", self.cache.snapshot(copy=False))
        logits = torch.as_tensor(Rank.here.call("feed", pieces, prompt))
        self.cache.clocks = self.own.cache.clocks
        return logits


def open_split(settings: Settings, progress: Progress) -> Loaded:
    """Opens the model on all ranks, each with its part; UsageError: that is not possible."""
    rank, found = Rank.here, find(settings.model)
    made = check_family(found.folder).get_text_config()
    heads = gcd(*(getattr(of, "num_key_value_heads", of.num_attention_heads) for of in made.per_layer_config))
    why = (
        (settings.engine not in ("auto", "transformers") and f"--engine {settings.engine} was given")
        or (settings.quantize not in ("auto", "none") and f"--quantize {settings.quantize} was given")
        or (settings.device != "auto" and f"--device {settings.device} was given")
        or (not made.base_model_tp_plan and "transformers has no plan for its family")
        or (any(kind.keeps_state for kind in kinds_of(made)) and "some of its layers keep a state")
        or (heads % rank.count and f"the number of KV heads, {heads}, does not divide")
    )
    if why:
        hint = "Leave that out, take another --nproc-per-node, or run it without torchrun."
        raise UsageError(f"{found.name} cannot be split over {rank.count} ranks: {why}.", hint)
    threads = settings.threads or max(1, default_threads() // int(os.environ["LOCAL_WORLD_SIZE"]))
    rank.progress = progress
    settings = replace(settings, engine="transformers", quantize="none", threads=threads)
    return cast(Loaded, rank.call("open", settings))
