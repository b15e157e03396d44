"""Weights, step and cache of R rows. A row is one conversation (`row.py`); here it is a number."""

import inspect
import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor

import h2o_chat
from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.base.progress import ShouldStop, never
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.eviction import TORCH
from h2o_chat.cache.forward_call import Step
from h2o_chat.cache.quantized import BITS
from h2o_chat.cache.rope import Positions
from h2o_chat.engine.device_choice import device_choice
from h2o_chat.engine.undo import drop_half_absorbed, undo
from h2o_chat.events.events import Session
from h2o_chat.graph.ahead import Ahead, can_go_ahead
from h2o_chat.graph.loading import LoadedGraph
from h2o_chat.models.fits import slot_bytes
from h2o_chat.models.load import Loaded
from h2o_chat.models.tokenizer_calls import blamed_on_the_model
from h2o_chat.native.native_model import LoadedNative, positions_of
from h2o_chat.native.slot_kernels import slot_kernels, supports
from h2o_chat.native.step import NativeStep
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.probe import input_device, probe
from h2o_chat.transformers_cache.snapshot import Snapshot

if TYPE_CHECKING:
    from h2o_chat.graph.step import GraphStep


CALL_TOKENS = 512  # most tokens of a prompt in one call, on a GPU
CALL_TOKENS_CPU = 128
"""Most on a CPU, where more are hardly faster: progress must be shown four times a second. Not with nf4:
640 tokens in one call take 1.16 s instead of 1.37 there (135M, two cores)."""
CALL_FLOP = 150e9  # about the most operations of a call: a second on a CPU, until progress is shown


class Runner:
    """Feeds tokens to R conversations, which may be of different age.

    Args:
        loaded: the model, with attn_implementation="h2o".
        cache: an empty one, made with the model's positions.
        native: the native step of another runner of this model, to share; None makes one, where it is used.

    Raises:
        UsageError: the cache was made without positions.
    """

    def __init__(
        self, loaded: Loaded, cache: H2OCache, rows: int = 1, native: NativeStep | None = None
    ) -> None:
        if cache.trained is None or cache.plan.distance is None or not cache.plan.distance.rebases:
            raise UsageError("This H2OCache was made without positions.", "Pass positions=probe(model).")
        self.loaded, self.cache, self.rows = loaded, cache, rows
        self.model, self.trained = loaded.model, cache.trained
        self.eos = end_tokens(loaded)
        self.native = native  # None: transformers computes
        self._ahead: Ahead | None = None
        self.chosen = -1  # the token that was fed ahead, as soon as the host has read it
        self.torn: set[int] = set()
        """Rows that hold part of a step which has raised: they have to be put or emptied."""
        if isinstance(loaded, LoadedNative) and native is None:
            self.native = NativeStep(loaded.packed, torch.get_num_threads())
        self.device = torch.device("cpu") if self.native else input_device(self.model)
        few = self.device.type == "cpu" and loaded.quantization != "nf4"
        most = CALL_TOKENS_CPU if few else CALL_TOKENS
        self._call_tokens = min(most, int(CALL_FLOP / 2 / max(1, loaded.parameters)))
        self._kernels = TORCH
        self.graph: GraphStep | None = None  # decodes on a GPU; None: transformers does, or the native step
        if isinstance(loaded, LoadedGraph):
            from h2o_chat.graph import step  # imports Triton

            self.graph = step.GraphStep(loaded.weights, loaded.frame)
            self._kernels = self.graph.kernels
        if self.native is None and self.device.type == "cpu" and supports(cache.plan.policy):
            self._kernels = slot_kernels(loaded.sizes, self.trained.ropes, loaded.precision)
        self._keeps_last = (
            self.native is None and "logits_to_keep" in inspect.signature(self.model.forward).parameters
        )

    def warm_up(self) -> None:
        """Compiles or loads the graph step's kernels (0.6 s) with two tokens, before any other is fed."""
        if self.graph is not None:
            for prompt in (True, False):
                logits = self.feed([[0]] * self.rows, prompt)
            self.cache.reset()
            device_choice(logits.device, logits.shape[-1]).warm_up()

    # -- rows ------------------------------------------------------------------------------------------

    def clock(self, row: int) -> Clock:
        if self._ahead is not None:
            return self._ahead.clock
        return self.cache.clocks[row] if row < len(self.cache.clocks) else Clock()

    def row_snapshot(self, row: int, *, copy: bool = True) -> Snapshot:
        """The state of a row; without `copy` valid until the next token is fed."""
        self.sync_cache()
        return self.cache.take_row(row, copy=copy)

    def put(self, row: int, snapshot: Snapshot, *, hand_over: bool = False) -> None:
        """Gives a row the state in a snapshot, of this runner or another; the other rows stay.

        Args:
            hand_over: the snapshot is not used again: a runner of one row takes its tensors, not copies.

        Raises:
            UsageError: it was taken from a cache with another policy, budget, precision or model; or from
                several rows; or there is no such row.
        """
        if len(snapshot.clocks) > 1 or not 0 <= row < self.rows:
            raise UsageError(
                f"{len(snapshot.clocks)} rows cannot be put into row {row} of {self.rows}.",
                "Give what was taken of one row, and one of the runner's rows.",
            )
        self._clear_torn(row)
        if self.rows == 1:
            self.cache.restore(snapshot, hand_over=hand_over)
        elif self.cache.current_arenas() or not snapshot.parts:
            self.cache.put_row(row, snapshot)
        else:  # nothing was fed yet: all rows become copies of this one, and the others are emptied
            others = {other: self.row_snapshot(other) for other in range(self.rows) if other != row}
            before = self.cache.clocks, self.cache.fresh
            try:
                self.cache.restore(snapshot)
                self.cache.select_rows(torch.zeros(self.rows, dtype=torch.long))
                for other, empty in others.items():
                    self.cache.put_row(other, empty)
            except BaseException:  # there may be no memory for so many rows
                self.cache.reset()
                self.cache.clocks, self.cache.fresh = before
                raise

    def empty(self, row: int) -> None:
        """Forgets all of a row; the others stay."""
        self._clear_torn(row)
        if self.rows == 1:
            self.cache.reset()  # which gives its memory back
        else:
            self.cache.put_row(row, None)

    def _clear_torn(self, row: int) -> None:
        self._ahead = None
        self.torn |= drop_half_absorbed(self.cache)
        self.torn.discard(row)

    # -- a step ----------------------------------------------------------------------------------------

    @property
    def call_tokens(self) -> int:
        """Prompt tokens for a row in the next call: whole chunks, at least one.

        One chunk where keys are due to be clamped between two; with prefill="full" what the window can hold.
        Each chunk evicts before the next one attends, so this changes no token.
        """
        chunk, plan = self.cache.pass_tokens, self.cache.plan
        many = max(chunk, self._call_tokens // chunk * chunk)
        seen = max((clock.seen for clock in self.cache.clocks), default=0)
        assert plan.distance is not None
        clamps = not plan.distance.learned and seen + many - chunk >= plan.distance.reach
        return chunk if clamps or plan.prefill == "full" or self.cache.shares_slots else many

    def has_room(self, row: int, tokens: int = 1) -> bool:
        """Whether a row can be fed so many more tokens: without a budget it ends with the model's window."""
        return self.cache.plan.shares.bounded or self.clock(row).seen + tokens <= self.trained.window

    def feed(
        self,
        pieces: Sequence[Sequence[int]],
        prompt: bool,
        *,
        all_columns: bool = False,
        cancelled: ShouldStop = never,
        on_device: Tensor | None = None,
    ) -> Tensor:
        """Feeds every row its next tokens, in one call of the model.

        If anything is raised, rows without a piece are unchanged, and so are the others where no slot had
        changed yet; otherwise the others are `torn`. All rows are torn where keys were being turned, or the
        last prompt was being absorbed.

        Args:
            pieces: the tokens of each row, R of them. A row without any waits: nothing of it changes.
            prompt: a person said them, not the model.
            all_columns: logits after every token, not after the last one alone.
            cancelled: asked before each layer of a prompt.
            on_device: [R] tokens for the graph step instead of `pieces`, one of each row.

        Returns:
            Logits [R, 1, V] of each row's last token, valid until the next step; or [R, N, V]: shorter pieces
            stand at the end of the N columns, and the columns before them mean nothing.

        Raises:
            UsageError: more tokens than the model's window holds, none at all, not a piece for each row, or
                one for a row that is torn.
            WindowFullError: the `full` policy reached the end of the window.
            Cancelled: it was cancelled.
        """
        if self._ahead is not None:
            if not prompt and len(pieces) == 1 and [*pieces[0]] == [self.chosen]:
                logits, self._ahead = self._ahead.logits, None
                return logits
            self.sync_cache()
        tokens = max(map(len, pieces), default=0)
        if len(pieces) != self.rows or not tokens:
            raise UsageError(
                f"{len(pieces)} pieces of at most {tokens} tokens were given to {self.rows} rows.",
                "Give a piece for each row, and at least one token in all.",
            )
        fed_rows = {row for row, piece in enumerate(pieces) if piece}
        if torn := fed_rows & self.torn:
            raise UsageError(
                f"The last step of row {min(torn)} ended in the middle.",
                "Go back to a snapshot that was taken before it, or empty the row.",
            )
        if self.cache.state_layers and len({len(pieces[row]) for row in fed_rows}) > 1:
            raise UsageError(
                "This model's layers keep a state, which padding would enter: pieces have one length.",
                "Feed pieces of each length in a call of their own.",
            )
        padding = [tokens - len(piece) for piece in pieces]
        real = None
        if any(padding):
            pieces = [[0] * missing + [*piece] for missing, piece in zip(padding, pieces, strict=True)]
            begins = torch.tensor(padding, device=self.device)[:, None]
            real = torch.arange(tokens, device=self.device) >= begins
        step = Step(tokens, prompt, real, kernels=self._kernels, cancelled=cancelled)
        before = [replace(clock) for clock in self.cache.clocks]
        fed = self.cache.fed
        try:
            self.cache.prepare(step)
            if self.graph is not None and tokens == 1 and self.graph.computes(self.cache):
                known = [token for (token,) in pieces]
                return self.graph.feed(self.cache, known if on_device is None else on_device)
            ids = torch.tensor(pieces, device=self.device)
            if self.native is not None:
                return self.native.feed(self.cache, ids, all_columns=all_columns)
            logits = self._transformers_step(ids, real, all_columns)
            self.cache.keep_states({*range(self.rows)} - fed_rows)
        except BaseException:
            self.torn |= undo(self.cache, step, before, fed, fed_rows)
            raise
        return logits if all_columns else logits[:, -1:]

    def feed_ahead(self, token: Tensor) -> None:
        """Feeds the token [1] that the device is just choosing, where that can be undone.

        `feed` of that token finds it done; whatever else changes or reads the row takes it back first.
        """
        if self.graph is not None and can_go_ahead(self.cache) and self.graph.captured(self.cache):
            ahead = Ahead(self.cache)
            ahead.logits, self.chosen = self.feed([[-1]], prompt=False, on_device=token), -1
            self._ahead = ahead

    def sync_cache(self) -> None:
        """Undoes what was fed ahead, for whoever reads or changes the cache."""
        if self._ahead is not None:
            self._ahead.undo()
            self._ahead = None

    @torch.inference_mode()
    def _transformers_step(self, ids: Tensor, real: Tensor | None, all_columns: bool) -> Tensor:
        """Computes the prepared step with transformers: tokens [R, N] in, logits [R, N or fewer, V] out."""
        inputs: dict[str, Any] = {}
        if self._keeps_last and not all_columns:
            # Layers that share slots leave out all other tokens where this is a number.
            last = torch.tensor([ids.shape[1] - 1], device=self.device)
            inputs["logits_to_keep"] = last if self.cache.shares_slots else 1
        if real is not None or self.trained.learned:
            # Without a mask OPT builds one over everything ever seen.
            inputs["attention_mask"] = torch.ones_like(ids) if real is None else real.long()
        output = self.model(
            input_ids=ids,
            position_ids=self.cache.position_ids().to(self.device).expand(len(ids), -1),
            past_key_values=self.cache,
            use_cache=True,
            **inputs,
        )
        return torch.as_tensor(output.logits)


def cache_for(loaded: Loaded, settings: Settings, trained: Positions | None = None) -> H2OCache:
    """An empty cache with these settings; raises as `H2OCache`."""
    return H2OCache(
        settings.budget,
        policy=settings.policy,
        sinks=settings.sinks,
        recent=settings.recent,
        chunk=settings.chunk,
        prefill=settings.prefill,
        positions=trained or trained_positions(loaded),
        observe=True,
        kv=settings.kv_dtype,
    )


def trained_positions(loaded: Loaded) -> Positions:
    """How a model's layers turn their keys, whichever step computes it; raises ModelError if unknown."""
    if isinstance(loaded, LoadedNative):
        return positions_of(loaded.packed.frame, loaded.chats)
    with blamed_on_the_model("The model cannot compute with the configuration in its folder"):
        return probe(loaded.model, loaded.chats)


def end_tokens(loaded: Loaded) -> frozenset[int]:
    """Ids that end an answer, wherever the model says so; raises ModelError if one of them is no id."""
    ids = loaded.ends if isinstance(loaded.ends, list) else [loaded.ends]
    wrong = [one for one in ids if one is not None and type(one) is not int]
    if wrong:
        raise ModelError(
            f"The model's generation_config.json or config.json names {str(wrong[0])[:60]!r} as its end.",
            "It must be a token's number, or a list of them: mend it, or fetch the file again.",
        )
    return frozenset(token for token in (*ids, loaded.tokenizer.eos_token_id) if token is not None)


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
        kv_heads=max((heads for heads, *_ in runner.trained.shapes), default=loaded.sizes.kv_heads),
        window=runner.trained.window,
        versions={
            "h2o-chat": h2o_chat.__version__,
            # A class of torch's own, which would import torch wherever the event is read.
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        stride=plan.stride,
        engine_why=runner.native.description if runner.native else loaded.why_not_native,
        fixed_bytes=sum(kind.state_bytes for kind in runner.trained.layers),
        slot_bytes=slot_bytes(loaded.sizes, loaded.precision.itemsize, kv, runner.trained.shapes),
    )
