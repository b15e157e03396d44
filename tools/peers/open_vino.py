"""OpenVINO GenAI (see `orders.py`), with and without its own cache eviction.

python open_vino.py FOLDER --contexts TOKENS ... --threads N [--slots N]
"""

import time
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
from orders import ms_since, obey, parser, random_ids

BLOCK_TOKENS = 32
"""Tokens of a block of paged attention on a CPU."""
BATCH_TOKENS = 512
START_TOKENS, RECENT_TOKENS = 32, 128
"""Never evicted: OpenVINO's own choice."""
UNTIMED = 2
"""Tokens after a prompt, in which what it left over is evicted."""
ENDLESS = 1 << 30


class OpenVino:
    """Continuous batching with one request, step by step: one token each.

    Args:
        slots: most tokens kept of a conversation, a multiple of 32; 0: all.
    """

    def __init__(self, folder: str, contexts: list[int], threads: int, slots: int) -> None:
        self.slots, self.vocabulary = slots, self._vocabulary(folder)
        how = genai.SchedulerConfig()
        how.num_kv_blocks = 2 * sum(contexts) // BLOCK_TOKENS + 64
        how.max_num_batched_tokens, how.max_num_seqs = BATCH_TOKENS, 1
        # Kept blocks are how a turn begins where the last one began; what was evicted cannot be kept.
        how.enable_prefix_caching, how.use_cache_eviction = not slots, bool(slots)
        if slots:
            how.cache_eviction_config = genai.CacheEvictionConfig(
                START_TOKENS, RECENT_TOKENS, slots, genai.AggregationMode.NORM_SUM
            )
        self.pipeline = genai.ContinuousBatchingPipeline(
            folder, how, "CPU", {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        )
        self.generation = genai.GenerationConfig()
        self.generation.max_new_tokens, self.generation.ignore_eos = ENDLESS, True
        self.generation.eos_token_id, self.generation.stop_token_ids = 2, {2}
        self.request: Any = None
        self.requests = 0
        self.prompts: dict[int, list[int]] = {}
        """By tokens seen."""
        self.running = 0
        """Tokens seen of the conversation that the request is of."""

    def about(self) -> dict[str, str | int]:
        kept = f"evicting down to {self.slots} tokens (start {START_TOKENS}, recent {RECENT_TOKENS})"
        weights = "int4 weights by nncf, groups of 128, embedding and head in int8"
        how = f"{weights}; paged attention, K/V in u8, {kept if self.slots else 'nothing evicted'}"
        return {"given": f"openvino-genai {genai.get_version().split('-')[0]}: {how}"}

    def read(self, tokens: int) -> list[float]:
        self.prompts[tokens] = random_ids(tokens, self.vocabulary)
        # Another first token for each prompt: of one that was read before, the blocks are still there.
        self.prompts[tokens][0] = 3 + self.requests % 100
        self._end()
        clock = time.perf_counter()
        self._begin(tokens)
        return [ms_since(clock)]

    def decode(self, seen: int, tokens: int) -> list[float]:
        """Where tokens are evicted a conversation goes on, or is read once more, before the clock."""
        if not self.slots or self.running != seen:
            self._end()
            self._begin(seen)
            for _ in range(UNTIMED):
                self._step()
        took_ms = []
        for _ in range(tokens):
            clock = time.perf_counter()
            self._step()
            took_ms.append(ms_since(clock))
        return took_ms

    def _begin(self, seen: int) -> None:
        """Until the first token."""
        self.requests += 1
        self.running = seen
        ids = ov.Tensor(np.array([self.prompts[seen]], np.int64))
        self.request = self.pipeline.add_request(self.requests, ids, self.generation)
        while not self.request.can_read():
            self.pipeline.step()
        self.request.read()

    def _step(self) -> None:
        """
        Raises:
            RuntimeError: it made no token.
        """
        self.pipeline.step()
        if not self.request.can_read():
            raise RuntimeError("A step of OpenVINO GenAI made no token.")
        self.request.read()

    def _end(self) -> None:
        if self.request is not None:
            self.request.stop()
            while self.pipeline.has_non_finished_requests():
                self.pipeline.step()

    @staticmethod
    def _vocabulary(folder: str) -> int:
        model = ov.Core().read_model(f"{folder}/openvino_model.xml")
        return int(model.output("logits").get_partial_shape()[2].get_length())


if __name__ == "__main__":
    wanted = parser()
    wanted.add_argument("--slots", type=int, default=0)
    asked = wanted.parse_args()
    obey(lambda: OpenVino(asked.weights, asked.contexts, asked.threads, asked.slots))
