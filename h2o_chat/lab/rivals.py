"""Who is timed by `bench speed`: stock transformers, this program, other programs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Event, Token
from h2o_chat.lab.idle import Sample, Watched, wait_until_still
from h2o_chat.lab.peer import Peer
from h2o_chat.models.load import Loaded

GREEDY = Sampling(max_tokens=None, ignore_eos=True)
SCREEN = Sampling(temperature=0.7, top_p=0.9, min_p=0.05, max_tokens=None, ignore_eos=True)
"""The screen's own."""


class Rival(Protocol):
    """Somebody who reads a prompt and decodes tokens; both return the time it took."""

    def read(self, ids: Sequence[int], known: Watched) -> Sample:
        """Forgets everything and reads a prompt, until the first token is known.

        Args:
            known: processes that are meant to run meanwhile.
        """

    def decode(self, tokens: int, known: Watched) -> Sample:
        """Generates so many tokens; as many are seen before the next turn as were before this one, or more
        where a token costs the same however many were seen."""

    def close(self) -> None:
        """Gives back what it holds."""


class Stock:
    """Transformers' own way: a full cache, SDPA."""

    def __init__(self, loaded: Loaded) -> None:
        self.model = loaded.model
        self.cache: Any = None
        self.token = 0

    def read(self, ids: Sequence[int], known: Watched) -> Sample:
        self.model.set_attn_implementation("sdpa")
        with Sample(known) as sample:
            self.cache = DynamicCache(config=self.model.config)
            self.token = int(self._forward(list(ids)).argmax())
        return sample

    def decode(self, tokens: int, known: Watched) -> Sample:
        self.model.set_attn_implementation("sdpa")
        token = self.token
        with Sample(known) as sample:
            for _ in range(tokens):
                token = int(self._forward([token]).argmax())
        self.cache.crop(-tokens)
        return sample

    def close(self) -> None:
        self.cache = None

    def _forward(self, ids: list[int]) -> Tensor:
        with torch.inference_mode():
            tokens = torch.tensor([ids], device=self.model.device)
            output = self.model(tokens, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        return torch.as_tensor(output.logits[0, -1])


class Ours:
    """This program, as it runs: `Engine.generate` with its events."""

    def __init__(self, loaded: Loaded, settings: Settings, threads: int, sampling: Sampling) -> None:
        self.threads, self.sampling = threads, sampling
        torch.set_num_threads(threads)  # before the engine: it takes as many
        self.engine = Engine(loaded, settings)
        self.events: Iterator[Event] = iter(())

    def read(self, ids: Sequence[int], known: Watched) -> Sample:
        self._mine()
        self.engine.reset()
        with Sample(known) as sample:
            self.events = self.engine.generate(ids, self.sampling)
            self._take(1)
        return sample

    def decode(self, tokens: int, known: Watched) -> Sample:
        self._mine()
        with Sample(known) as sample:
            self._take(tokens)
        return sample

    def close(self) -> None:
        self.events = iter(())
        self.engine.close()

    def _mine(self) -> None:
        """Another's turn may have changed the threads, and the attention of a model that both use."""
        torch.set_num_threads(self.threads)
        if self.engine.session.engine == "transformers":
            self.engine.model.set_attn_implementation("h2o")

    def _take(self, tokens: int) -> None:
        while tokens:
            tokens -= isinstance(next(self.events), Token)


class Other:
    """A conversation with another program, in a process of its own, which says how long it took."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.seen = 0

    def read(self, ids: Sequence[int], known: Watched) -> Sample:
        self.seen = len(ids)
        return self._timed(known, lambda: self.peer.read(len(ids)))

    def decode(self, tokens: int, known: Watched) -> Sample:
        return self._timed(known, lambda: self.peer.decode(self.seen, tokens))

    def close(self) -> None:
        self.peer.close()

    def _timed(self, known: Watched, work: Callable[[], float]) -> Sample:
        with Sample([*known, self.peer.process]) as sample:
            ms = work()
        sample.ms = ms  # without the way there and back
        wait_until_still(self.peer.process)  # some spin for a while after their work
        return sample
