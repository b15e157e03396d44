"""ctranslate2 (see `orders.py`).

python ctranslate.py FOLDER --contexts TOKENS ... --threads N
"""

import itertools
import json
import time
from pathlib import Path

import ctranslate2
from orders import ms_since, obey, parser, random_ids


class CTranslate:
    """It keeps the state after a fixed prompt, and goes on from there in every turn."""

    def __init__(self, folder: str, threads: int) -> None:
        self.generator = ctranslate2.Generator(
            folder, device="cpu", compute_type="int8", inter_threads=1, intra_threads=threads
        )
        self.vocabulary = len(json.loads((Path(folder) / "vocabulary.json").read_text("utf-8")))

    def about(self) -> dict[str, str | int]:
        version = f"ctranslate2 {ctranslate2.__version__}"
        return {"given": f"{version}: int8 weights and activations, all it has on a CPU; K/V in fp32"}

    def read(self, tokens: int) -> list[float]:
        ids = self._ids(tokens)
        clock = time.perf_counter()
        self.generator.generate_batch(
            [ids], include_prompt_in_result=False, min_length=1, max_length=1, cache_static_prompt=False
        )
        return [ms_since(clock)]

    def decode(self, seen: int, tokens: int) -> list[float]:
        """Where the state after this prompt is not kept yet, it is read once more, before the clock."""
        ids = self._ids(seen)
        clocks: list[float] = []

        def step(_: object) -> bool:
            clocks.append(time.perf_counter())
            return False

        self.generator.generate_batch(
            [ids[-1:]],
            static_prompt=ids[:-1],
            cache_static_prompt=True,
            include_prompt_in_result=False,
            min_length=tokens + 1,
            max_length=tokens + 1,
            callback=step,
        )
        return [1000 * (end - start) for start, end in itertools.pairwise(clocks)]

    def _ids(self, tokens: int) -> list[str]:
        return [f"t{number}" for number in random_ids(tokens, self.vocabulary)]


if __name__ == "__main__":
    asked = parser().parse_args()
    obey(lambda: CTranslate(asked.weights, asked.threads))
