"""The training loop: plan, optimisers, checkpoints, exact resume and the recall curve."""

import json
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tokenizers import Tokenizer

from .data import Corpus, Encoder, SampleStream
from .evaluate import dialogue_questions, recall, summarize
from .export import export, to_transformers
from .model import SHAPES, Pocket
from .muon import Muon

TOKENS_PER_STEP = 4096
_CHECKPOINT_SECONDS = 300.0
_CURVE_TOKENS = 5_000_000
_CURVE_RANGES = [(20, 300), (300, 1000), (1000, 1500)]
_WARMUP_STEPS = 100
_DECAY_SHARE = 0.25
_MATRIX_RATE, _OTHER_RATE = 0.012, 3e-3


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


def window(progress: float) -> int:
    """Short windows first, where copying is learned; the long half is for distances."""
    return 512 if progress < 0.28 else 1024 if progress < 0.5 else 2048


def denials(progress: float) -> float:
    """Questions without an answer, for each fact. Few until facts are found: to deny is the easy way out."""
    return 0.25 if progress < 0.66 else 0.6


class Trainer:
    """One run in one folder: checkpoint.pt, log.jsonl and export/.

    Several workers share a step's rows and average their gradients once a step. On a CPU that
    others use too, a worker a core is several times faster than one worker of two threads,
    which waits at every product for the thread that was put aside.
    """

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, folder: Path, size: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.rank, self.workers = dist.get_rank(), dist.get_world_size()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.corpus, self.tokenizer, self.folder = corpus, tokenizer, folder
        self.shape = SHAPES[size]
        self.model = Pocket(self.shape).to(self.device)
        self.stream = SampleStream(corpus, tokenizer, seed * 1000 + self.rank)
        matrices = [w for n, w in self.model.named_parameters() if "proj" in n]
        others = [w for n, w in self.model.named_parameters() if "proj" not in n]
        adam = torch.optim.AdamW(others, _OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
        muon = Muon(matrices, lr=_MATRIX_RATE, momentum=0.95, decay=0.01)
        self.optimizers: list[torch.optim.Optimizer] = [muon, adam]
        self.base_rates = [_MATRIX_RATE, _OTHER_RATE]
        self.compiled = torch.compile(self.model, dynamic=False)
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.leave = False
        folder.mkdir(parents=True, exist_ok=True)
        if self.checkpoint.exists():
            self._load()

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
                rate = 20 * TOKENS_PER_STEP / (now - shown)
                shown = now
                self._log(
                    loss=round(loss, 4), progress=round(progress, 4), window=window(progress),
                    lr=rate_factor(progress, self.step), tokens_per_s=round(rate),
                )  # fmt: skip
            if self.tokens // _CURVE_TOKENS > (self.tokens - TOKENS_PER_STEP) // _CURVE_TOKENS:
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
        dist.all_reduce(progress)
        return float(progress)

    def _agreed(self, wanted: bool) -> bool:
        """What the first worker wants, so that all do the same."""
        flag = torch.tensor([int(wanted)])
        dist.broadcast(flag, 0)
        return bool(flag)

    def _train_step(self, progress: float) -> float:
        for optimizer, base in zip(self.optimizers, self.base_rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = base * rate_factor(progress, self.step)
        length = window(progress)
        self.stream.writer.denials = denials(progress)
        ids, weights = self.stream.batch(TOKENS_PER_STEP // length // self.workers, length)
        ids, weights = ids.to(self.device), weights.to(self.device)
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.compiled(ids[:, :-1], ids[:, 1:], weights[:, 1:])
        loss.backward()
        self._average_gradients()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        self.tokens += TOKENS_PER_STEP
        return float(loss)

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
        streams: list[Any] = [None] * self.workers
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
        results = recall(model, self.tokenizer, questions)
        tables = summarize(results, _CURVE_RANGES)
        by_distance = {name: row["share"] for name, row in tables["distance"].items()}
        by_kind = {name: row["share"] for name, row in tables["kind"].items()}
        self._log(event="recall", distance=by_distance, kind=by_kind, asked=len(results))

    def _log(self, **fields: Any) -> None:
        if self.rank:
            return
        row = {"time": time.strftime("%H:%M:%S", time.gmtime()), "step": self.step}
        row |= {"tokens": self.tokens, **fields}
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
