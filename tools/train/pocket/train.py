"""The training loop: plan, optimisers, checkpoints, exact resume and the recall curve."""

import json
import os
import signal
import time
from collections.abc import Iterator
from ctypes import c_double
from dataclasses import asdict, dataclass
from multiprocessing import Value
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from .data import Corpus, Encoder, SampleStream
from .evaluate import dialogue_questions, held_out_bits, recall, summarize
from .export import export, to_transformers
from .model import SHAPES, Pocket

_CHECKPOINT_SECONDS = 300.0
_CURVE_RANGES = [(20, 300), (300, 1000), (1000, 1500)]
_WARMUP_STEPS = 100
_DECAY_SHARE = 0.25


@dataclass(frozen=True)
class Pace:
    """Settings that suit a machine."""

    tokens_per_step: int
    curve_tokens: int
    """Tokens between two looks at recall."""
    matrix_rate: float
    other_rate: float
    decay: float
    """Decay of the matrices' weights."""
    rows: int
    """Answered at once when recall is looked at."""
    windows: tuple[tuple[float, int], ...]
    """(progress up to which, tokens of a window). Short ones first, where copying is learned; long ones are
    for distances."""


PACES = {
    "cpu": Pace(4096, 5_000_000, 0.012, 3e-3, 0.01, 8, ((0.28, 512), (0.5, 1024), (1, 2048))),
    # Real text comes some thirty times: weights decay more (as in arXiv 2502.16982). Each window is compiled.
    "cuda": Pace(65_536, 100_000_000, 0.02, 3e-3, 0.1, 72, ((0.1, 512), (1, 2048))),
}


@dataclass
class Plan:
    """How far the run is, from 0 to 1; it ends at a number of tokens or at a moment.

    With `tokens` a run is reproducible to the bit; with `ends_at` (seconds since the epoch)
    it uses the time that there is. `finishing` starts in the decay.
    """

    tokens: int | None = None
    ends_at: float | None = None
    finishing: bool = False

    def begin(self, seconds_before: float) -> None:
        self.began = time.time()
        self.before = 0.0 if self.finishing else seconds_before

    def progress(self, tokens: int) -> float:
        if self.tokens is not None:
            return tokens / self.tokens
        assert self.ends_at is not None
        used = time.time() - self.began
        whole = self.before + self.ends_at - self.began
        share = 1.0 if whole <= 0 else (self.before + used) / whole
        return 1 - _DECAY_SHARE * (1 - share) if self.finishing else share


def rate_factor(progress: float, step: int) -> float:
    """Warmup, stable, then a linear decay over the last quarter (WSD, arXiv 2404.06395)."""
    return min(1.0, (step + 1) / _WARMUP_STEPS, max(0.0, 1 - progress) / _DECAY_SHARE)


def window(pace: Pace, progress: float) -> int:
    return next((tokens for until, tokens in pace.windows if progress < until), pace.windows[-1][1])


def denials(progress: float) -> float:
    """Questions without an answer, for each fact. Few until facts are found: to deny is the easy way out."""
    return 0.25 if progress < 0.66 else 0.6


class Drawn(IterableDataset[tuple[Tensor, Tensor]]):
    """Batches that processes of a loader draw, for ever, as far as the run is.

    Each draws its own; when a run is resumed they begin with others.
    """

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, seed: int, pace: Pace) -> None:
        self.corpus, self.tokenizer, self.seed, self.pace = corpus, tokenizer, seed, pace
        self.progress = Value(c_double, 0.0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        torch.set_num_threads(1)
        info = get_worker_info()
        stream = SampleStream(self.corpus, self.tokenizer, self.seed + (info.id if info else 0))
        while True:
            length = window(self.pace, self.progress.value)
            stream.writer.denials = denials(self.progress.value)
            yield stream.batch(self.pace.tokens_per_step // length, length)


class Trainer:
    """One run in one folder: checkpoint.pt, log.jsonl and export/.

    Several workers share a step's rows and average their gradients once a step. On a CPU that
    others use too, a worker a core is several times faster than one worker of two threads,
    which waits at every product for the thread that was put aside.
    """

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, folder: Path, size: str, seed: int) -> None:
        torch.manual_seed(seed)
        alone = not dist.is_initialized()
        self.rank, self.workers = (0, 1) if alone else (dist.get_rank(), dist.get_world_size())
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.corpus, self.tokenizer, self.folder = corpus, tokenizer, folder
        self.pace = PACES[self.device]
        self.shape = SHAPES[size]
        self.model = Pocket(self.shape).to(self.device)
        self.stream = SampleStream(corpus, tokenizer, seed * 1000 + self.rank)
        matrices = [w for n, w in self.model.named_parameters() if "proj" in n]
        others = [w for n, w in self.model.named_parameters() if "proj" not in n]
        self.base_rates = [self.pace.matrix_rate, self.pace.other_rate]
        adam = torch.optim.AdamW(others, self.base_rates[1], betas=(0.9, 0.95), weight_decay=0.0, fused=True)
        muon = torch.optim.Muon(matrices, lr=self.base_rates[0], weight_decay=self.pace.decay)
        self.optimizers: list[torch.optim.Optimizer] = [muon, adam]
        self.compiled = torch.compile(self.model, dynamic=False)
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.leave = False
        folder.mkdir(parents=True, exist_ok=True)
        if self.checkpoint.exists():
            self._load()
        self.drawn: Drawn | None = None
        if self.device == "cuda":  # which one process could not feed
            self.drawn = Drawn(corpus, tokenizer, seed * 1000 + 100 * self.step, self.pace)
            processes = max(1, (os.cpu_count() or 1) - 3)
            self.loaded = iter(
                DataLoader(self.drawn, batch_size=None, num_workers=processes, pin_memory=True)
            )

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.pt"

    def run(self, plan: Plan) -> None:
        """Trains until the plan ends or SIGTERM or SIGINT comes; always leaves a checkpoint."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "leave", True))
        plan.begin(self.seconds)
        began, before = time.time(), self.seconds
        saved = shown = began
        self._log(event="start", plan=asdict(plan), shape=asdict(self.shape), device=self.device)
        while (progress := self._agree(plan)) < 1:
            loss = self._train_step(progress)
            now = time.time()
            self.seconds = before + now - began
            if self.step % 20 == 0:
                rate = 20 * self.pace.tokens_per_step / (now - shown)
                shown = now
                self._log(
                    loss=round(float(loss), 4), progress=round(progress, 4),
                    window=window(self.pace, progress), lr=rate_factor(progress, self.step),
                    tokens_per_s=round(rate),
                )  # fmt: skip
            every = self.pace.curve_tokens
            if self.tokens // every > (self.tokens - self.pace.tokens_per_step) // every:
                self._curve()
                shown = time.time()
            if self._agreed(now - saved > _CHECKPOINT_SECONDS):
                saved = now
                self.save()
        self.save()
        left = plan.progress(self.tokens) < 1
        if not left:
            self._curve()
        self._log(event="left" if left else "finished")

    def _agree(self, plan: Plan) -> float:
        """The first worker's progress; 2 where any worker was told to leave."""
        progress = torch.tensor([plan.progress(self.tokens) if self.rank == 0 else 0.0])
        if self.leave:
            progress += 2
        if self.workers > 1:
            dist.all_reduce(progress)
        return float(progress)

    def _agreed(self, wanted: bool) -> bool:
        """Decision of the first worker, so that all do the same."""
        flag = torch.tensor([int(wanted)])
        if self.workers > 1:
            dist.broadcast(flag, 0)
        return bool(flag)

    def _train_step(self, progress: float) -> Tensor:
        for optimizer, base in zip(self.optimizers, self.base_rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = base * rate_factor(progress, self.step)
        ids, weights = self._batch(progress)
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.compiled(ids[:, :-1], ids[:, 1:], weights[:, 1:])
        loss.backward()
        self._average_gradients()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        self.tokens += self.pace.tokens_per_step
        done: Tensor = loss.detach()
        return done

    def _batch(self, progress: float) -> tuple[Tensor, Tensor]:
        if self.drawn is not None:
            self.drawn.progress.value = progress
            ids, weights = next(self.loaded)
            return ids.to(self.device, non_blocking=True), weights.to(self.device, non_blocking=True)
        length = window(self.pace, progress)
        self.stream.writer.denials = denials(progress)
        return self.stream.batch(self.pace.tokens_per_step // length // self.workers, length)

    def _average_gradients(self) -> None:
        if self.workers == 1:
            return
        gradients = [w.grad for w in self.model.parameters() if w.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= self.workers
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def save(self) -> None:
        """Writes the checkpoint in one move, and an export that can be evaluated."""
        streams: list[Any] = [self.stream.state()]
        if self.workers > 1:
            streams *= self.workers
            dist.all_gather_object(streams, self.stream.state())
        if self.rank:
            return
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "streams": streams,
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.seconds,
        }
        part = self.checkpoint.with_suffix(".part")
        torch.save(state, part)
        part.replace(self.checkpoint)
        export(self.model, self.shape, self.tokenizer, self.folder / "export")

    def _load(self) -> None:
        # The file is this program's own; it holds a random generator's state beside tensors.
        state = torch.load(self.checkpoint, map_location=self.device, weights_only=False)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.stream.load_state(state["streams"][self.rank])
        self.step, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]

    def _curve(self) -> None:
        """Recall of unseen values in unseen phrasings on a small sample."""
        if self.rank:
            return
        questions = dialogue_questions(self.corpus, Encoder(self.tokenizer), _CURVE_RANGES, 3)
        model = to_transformers(self.model, self.shape).to(self.device)
        results = recall(model, self.tokenizer, questions, self.pace.rows)
        tables = summarize(results, _CURVE_RANGES)
        by_distance = {name: row["share"] for name, row in tables["distance"].items()}
        by_kind = {name: row["share"] for name, row in tables["kind"].items()}
        bits = held_out_bits(model, self.corpus, Encoder(self.tokenizer), 60)
        self._log(event="recall", distance=by_distance, kind=by_kind, asked=len(results), bits_per_byte=bits)

    def _log(self, **fields: Any) -> None:
        if self.rank:
            return
        row = {"time": time.strftime("%H:%M:%S", time.gmtime()), "step": self.step}
        row |= {"tokens": self.tokens, **fields}
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
