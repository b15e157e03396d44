"""Model + cache + loop: `Engine.generate(...)` yields events."""

import errno
import inspect
import os
import platform
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

import h2o_chat
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import BudgetError, ModelError, OutOfMemoryError, UsageError
from h2o_chat.base.progress import never
from h2o_chat.cache.cache import H2OCache
from h2o_chat.cache.policies import divide
from h2o_chat.cache.rope import probe
from h2o_chat.cache.step import Step
from h2o_chat.engine import advice
from h2o_chat.engine.generation import Generation
from h2o_chat.engine.observe import Observer
from h2o_chat.engine.sampling import Sampler
from h2o_chat.engine.saved import Snapshot, read, write
from h2o_chat.events.events import CacheState, Event, Session
from h2o_chat.models.fits import slot_bytes
from h2o_chat.models.load import Loaded, out_of_memory
from h2o_chat.models.tokenizing import blamed_on_the_model

CALL_TOKENS = 512
"""Of a prompt, fed in one call at most ..."""
CALL_FLOP = 150e9
"""... and at most about this many operations: less than a second on a CPU, until it may be stopped."""


class Engine:
    """One conversation with one model; every token is fed once.

    The last token of an answer has been sampled but not fed: it waits in `pending` and goes in front of the
    next turn.

    Args:
        loaded: the model, with attn_implementation="h2o".
        settings: budget, policy and the rest.

    Raises:
        BudgetError: the budget cannot work.
        ModelError: the model's positions are not understood.
    """

    def __init__(self, loaded: Loaded, settings: Settings) -> None:
        self.model = loaded.model
        self.tokenizer = loaded.tokenizer
        self.settings = settings
        self._loaded = loaded
        self.eos = end_tokens(loaded)
        with blamed_on_the_model("The model cannot compute with the configuration in its folder"):
            self.trained = probe(self.model, loaded.chats)
        self.cache = H2OCache(
            settings.budget,
            policy=settings.policy,
            sinks=settings.sinks,
            recent=settings.recent,
            chunk=settings.chunk,
            prefill=settings.prefill,
            positions=self.trained,
            observe=True,
            kv=settings.kv_dtype,
        )
        self.device = self.model.get_input_embeddings().weight.device
        self.seed = secrets.randbits(32) if settings.seed is None else settings.seed
        self.sampler = Sampler(self.seed, self.device)
        self.observer = Observer(self.cache, self.tokenizer)
        self._watched = True
        self.pending: tuple[int, ...] = ()
        """Sampled, not fed yet."""
        self._call_tokens = min(CALL_TOKENS, int(CALL_FLOP / 2 / max(1, self.model.num_parameters())))
        self._only_last = "logits_to_keep" in inspect.signature(self.model.forward).parameters
        self.session = self._session(loaded)

    @property
    def seen(self) -> int:
        """Tokens fed since the conversation began."""
        return self.cache.fed

    def generate(
        self, ids: Sequence[int], sampling: Sampling, cancel: Callable[[], bool] = never
    ) -> Iterator[Event]:
        """Reads `ids` and answers: `Prompt`, `Token` ..., now and then `CacheState`, at the end `Turn`.

        `cancel` is asked before every step and every prompt chunk. A prompt that was not read to its end is
        forgotten: one `Turn` comes, of no tokens, and the state is what it was before the call. So it is if
        anything is raised, after a `Turn` with what was generated.

        Raises:
            UsageError: there is nothing to read.
            GenerationError: the model's logits cannot be sampled from.
            OutOfMemoryError: the device is full.
        """
        if not ids and not self.pending:
            raise UsageError("There is nothing to read: the prompt is empty.")
        before = None
        turn = Generation(self, list(ids), sampling, cancel)
        try:
            before = self.snapshot()
            read = turn.read()
            if read is None:
                self.restore(before, hand_over=True)
                yield turn.ended("stopped")
                return
            yield from turn.answer(*read)
        except GeneratorExit:
            raise  # the reader left between two events, where the state is whole
        except BaseException as error:
            if before is not None:  # there was room for it
                self.restore(before, hand_over=True)
            if self.settings.events_every:
                yield self.look()  # takes back what was told of the tokens that are forgotten
            yield turn.ended("error")
            if out_of_memory(error):
                raise OutOfMemoryError(
                    f"{self.device} ran out of memory: {error}", self._smaller()
                ) from error
            raise

    def forward(self, ids: list[int], given: bool = False) -> Tensor:
        """Feeds tokens in one call; logits [V] of the last one.

        Args:
            given: they were said to the model, not by it.

        Raises:
            UsageError: more tokens than the model's window holds.
            WindowFullError: the `full` policy reached the end of the window.
        """
        tokens = len(ids)
        self.cache.prepare(Step(tokens, prompt=given))
        position_ids = self.cache.position_ids().to(self.device)
        if self.settings.events_every:  # else nobody would ask, and nothing would forget them
            self.observer.fed(self.seen, ids)
        self.sampler.history.extend(ids)
        inputs: dict[str, Any] = {"logits_to_keep": 1} if self._only_last else {}
        if self.trained.learned:
            # Without a mask OPT builds one over everything ever seen.
            inputs["attention_mask"] = torch.ones(1, tokens, dtype=torch.long, device=self.device)
        with torch.inference_mode():
            output = self.model(
                input_ids=torch.tensor([ids], device=self.device),
                position_ids=position_ids,
                past_key_values=self.cache,
                use_cache=True,
                **inputs,
            )
        return torch.as_tensor(output.logits[0, -1])

    def protect(self, tokens: int) -> int:
        """Protects the first tokens of the conversation (a system prompt); returns how many are."""
        return self.cache.protect(tokens)

    def pin(self, positions: range) -> int:
        """Protects the tokens at these positions, see `H2OCache.pin`; returns how many could be.

        Raises:
            BudgetError: that is more than may be protected; nothing has changed.
        """
        return self.cache.pin(positions)

    def unpin(self, positions: range | None = None, keep: Sequence[int] = ()) -> None:
        """Lets them be evicted again; None: all that was pinned, but `keep`."""
        self.cache.unpin(positions, keep)

    def budget_for(self, protected: int) -> int | None:
        """The smallest budget of which so many slots may be protected; None where no budget does."""
        return self.cache.budget_for(protected)

    def check(self, settings: Settings) -> None:
        """Lets settings through with which `remade` works.

        Raises:
            BudgetError: the budget cannot work.
        """
        if settings.policy != "full":
            divide(settings.policy, settings.budget, settings.sinks, settings.recent)

    def remade(self, settings: Settings) -> "Engine":
        """Another memory for the same model, with nothing in it.

        Raises:
            BudgetError: the budget cannot work.
        """
        return Engine(self._loaded, replace(settings, seed=self.seed))

    def reseed(self, seed: int) -> None:
        """Draws from here on as a conversation would that began with this seed."""
        self.seed = seed
        self.sampler.random.manual_seed(seed)
        self.session = replace(self.session, seed=seed)

    def protection(self) -> tuple[int, int | None]:
        """(protected slots of the fullest cache, slots left for heavy hitters or None without a limit)."""
        shares, protected = self.cache.plan.shares, self.cache.protected
        return protected, shares.budget - shares.recent - protected if shares.bounded else None

    def inspect(self, position: int) -> list[list[bool]]:
        """Which caches hold the token at a position: [layers][KV heads]."""
        layers = range(len(self.cache.layers))
        return [(self.cache.kept(layer)[0] == position).any(-1).tolist() for layer in layers]

    def text_of(self, position: int) -> str:
        """Text of a token that is still held."""
        return self.observer.text_of(position)

    def feed(
        self, ids: list[int], cancel: Callable[[], bool] = never, chunk: int = 0, given: bool = True
    ) -> Tensor | None:
        """Feeds what waits and `ids`, chunk by chunk (0: as prefill has it); logits of the last token.

        Args:
            given: they were said to the model, not by it.

        Returns:
            None if it was cancelled, between two chunks: then part of it was fed.
        """
        ids = [*self.pending, *ids]
        logits = None
        while ids:
            if cancel():
                return None
            tokens = chunk or self.cache.call_tokens(self._call_tokens)
            logits = self.forward(ids[:tokens], given)
            ids = ids[tokens:]
        self.pending = ()
        return logits

    def relive(self, ids: Sequence[int], *, answer: bool, exact: bool, cancel: Callable[[], bool]) -> bool:
        """Feeds a message again: a prompt as it was read, an answer up to its last token, which waits.

        Args:
            exact: an answer token by token, as it was generated; else in chunks: faster, another memory.

        Returns:
            Whether it was fed to its end; False if it was cancelled.

        Raises:
            UsageError: a token that this model does not have: it was said with another model.
        """
        known = self.model.get_input_embeddings().num_embeddings
        if ids and not 0 <= min(ids) <= max(ids) < known:
            raise UsageError(
                f"The conversation holds the token {max(ids):,}, and {self.session.model} knows {known:,}:"
                " it was held with another model of that name.",
                "Resume it with the folder it was held with, or export it and import it as a new one.",
            )
        whole, last = (list(ids[:-1]), tuple(ids[-1:])) if answer else (list(ids), ())
        if whole and self.feed(whole, cancel, 1 if answer and exact else 0, given=not answer) is None:
            return False
        self.pending = (*self.pending, *last)
        return True

    def look(self) -> CacheState:
        """What the cache holds now."""
        return self.observer.state(self._watched)

    def watch(self, on: bool) -> None:
        """Whether somebody looks at what only a memory panel shows; else it is not collected."""
        self._watched = on

    def save(self, path: Path) -> None:
        """Writes the state to a file, in one move.

        Raises:
            OSError: no room, on the disk or in memory, or no right to write there.
        """
        try:
            write(path, self.snapshot(copy=False), self.session)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error

    def load(self, path: Path) -> None:
        """Goes on from the state in a file.

        Raises:
            SavedCacheError: it is not there, damaged, or of another model or memory; nothing has changed.
        """
        config = self.model.config.get_text_config()
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        groups = config.num_attention_heads // self.session.kv_heads
        self.restore(read(path, self.session, self.device, size, groups, config.vocab_size), hand_over=True)

    def snapshot(self, *, copy: bool = True) -> Snapshot:
        """The state, for going back; without `copy` good until the next token is fed."""
        return Snapshot(
            cache=self.cache.snapshot(copy=copy),
            pending=self.pending,
            random=self.sampler.random.get_state(),
            history=tuple(self.sampler.history),
            texts=dict(self.observer.ids),
            lost=self.observer.lost,
        )

    def restore(self, snapshot: Snapshot, *, hand_over: bool = False) -> None:
        """Goes back to a snapshot; it can be used again unless it is handed over, which needs no memory."""
        self.cache.restore(snapshot.cache, hand_over=hand_over)
        self.pending = snapshot.pending
        self.sampler.random.set_state(snapshot.random)
        self.sampler.history = deque(snapshot.history, self.sampler.history.maxlen)
        self.observer.ids = dict(snapshot.texts)
        self.observer.lost = snapshot.lost

    def reset(self) -> None:
        """Forgets the conversation."""
        self.cache.reset()
        self.pending = ()
        self.sampler.history.clear()
        self.observer = Observer(self.cache, self.tokenizer)

    def close(self) -> None:
        """Nothing more will be asked of it: its memory can be used for another."""
        self.reset()

    def _smaller(self) -> str:
        """What to ask for where memory was too small."""
        config, itemsize = self.model.config.get_text_config(), self.model.dtype.itemsize
        slot = slot_bytes(config, itemsize, self.settings.kv_dtype)
        return advice.smaller(self.session, slot, itemsize, self.seen, self._can_be_halved())

    def _can_be_halved(self) -> bool:
        """Whether half of the budget still holds sinks and recent tokens."""
        try:
            self.check(replace(self.settings, budget=self.settings.budget // 2))
        except BudgetError:
            return False
        return True

    def _session(self, loaded: Loaded) -> Session:
        plan, config = self.cache.plan, self.model.config.get_text_config()
        dtype = str(self.model.dtype).removeprefix("torch.")
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
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
            kv_dtype=dtype if plan.bits is None else self.settings.kv_dtype,
            device=loaded.device,
            engine="transformers",
            threads=torch.get_num_threads(),
            seed=self.seed,
            layers=len(self.trained.ropes),
            kv_heads=heads,
            window=self.trained.window,
            versions={
                "h2o-chat": h2o_chat.__version__,
                # A class of torch's own, which would import torch wherever the event is read.
                "torch": str(torch.__version__),
                "transformers": transformers.__version__,
                "python": platform.python_version(),
            },
        )


def end_tokens(loaded: Loaded) -> frozenset[int]:
    """Ids that end an answer, wherever the model says so.

    Raises:
        ModelError: what its generation_config.json or config.json names is no id.
    """
    config = loaded.model.generation_config.eos_token_id
    ids = config if isinstance(config, list) else [config]
    wrong = [one for one in ids if one is not None and type(one) is not int]
    if wrong:
        raise ModelError(
            f"The model's generation_config.json or config.json names {str(wrong[0])[:60]!r} as its end.",
            "It must be a token's number, or a list of them: mend it, or fetch the file again.",
        )
    return frozenset(token for token in (*ids, loaded.tokenizer.eos_token_id) if token is not None)
