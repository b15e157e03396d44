"""onnxruntime-genai (see `orders.py`).

python onnx_genai.py FOLDER --context TOKENS --threads N
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as genai
from orders import ms_since, obey, parser, random_ids

ANY_TOKEN = 5
"""Fed at the beginning of a turn: what came after the prompt was taken back."""


class OnnxGenai:
    """One generator, taken back to the prompt after each turn."""

    def __init__(self, folder: str, context: int, threads: int) -> None:
        config = genai.Config(folder)
        options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self.model = genai.Model(config)
        about = json.loads((Path(folder) / "genai_config.json").read_text("utf-8"))
        self.vocabulary, self.context = int(about["model"]["vocab_size"]), context
        self.generator: Any = None
        self.seen = 0

    def about(self) -> dict[str, str | int]:
        given = f"onnxruntime-genai {genai.__version__}: int4 weights (groups of 32) and int8 activations"
        return {"given": f"{given}, as its builder chooses for a CPU; K/V in fp32, one buffer"}

    def read(self, tokens: int) -> list[float]:
        ids = np.array(random_ids(tokens, self.vocabulary), np.int32)
        how = genai.GeneratorParams(self.model)
        # No token ends it, as long as fewer than `min_length` were made.
        how.set_search_options(max_length=self.context + 2, min_length=self.context + 2, do_sample=False)
        clock = time.perf_counter()
        self.generator = genai.Generator(self.model, how)
        self.generator.append_tokens(ids)
        self.generator.generate_next_token()
        took_ms = ms_since(clock)
        self.seen = tokens
        self.generator.rewind_to(self.seen)
        return [took_ms]

    def decode(self, tokens: int) -> list[float]:
        took_ms = []
        for number in range(tokens):
            clock = time.perf_counter()
            if number == 0:
                self.generator.append_tokens(np.array([ANY_TOKEN], np.int32))
            self.generator.generate_next_token()
            took_ms.append(ms_since(clock))
        self.generator.rewind_to(self.seen)
        return took_ms


if __name__ == "__main__":
    asked = parser().parse_args()
    obey(lambda: OnnxGenai(asked.weights, asked.context, asked.threads))
