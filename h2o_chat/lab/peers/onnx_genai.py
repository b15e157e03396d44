"""onnxruntime-genai (see `orders.py`).

python onnx_genai.py FOLDER --contexts TOKENS ... --threads N
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as genai
from orders import ROOM_TOKENS, ms_since, obey, parser, random_ids

ANY_TOKEN = 5
"""Fed at the beginning of a turn: what came after the prompt was taken back."""


class OnnxGenai:
    """A generator for each conversation, taken back to its prompt after each turn."""

    def __init__(self, folder: str, threads: int) -> None:
        config = genai.Config(folder)
        options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self.model = genai.Model(config)
        about = json.loads((Path(folder) / "genai_config.json").read_text("utf-8"))
        self.vocabulary = int(about["model"]["vocab_size"])
        self.generators: dict[int, Any] = {}
        """By tokens seen."""

    def about(self) -> dict[str, str | int]:
        given = f"onnxruntime-genai {genai.__version__}: int4 weights (groups of 32) and int8 activations"
        return {"given": f"{given}, as its builder chooses for a CPU; K/V in fp32, one buffer"}

    def read(self, tokens: int) -> list[float]:
        ids = np.array(random_ids(tokens, self.vocabulary), np.int32)
        how = genai.GeneratorParams(self.model)
        # No token ends it, as long as fewer than `min_length` were made.
        most = tokens + ROOM_TOKENS
        how.set_search_options(max_length=most, min_length=most, do_sample=False)
        self.generators.pop(tokens, None)
        clock = time.perf_counter()
        generator = genai.Generator(self.model, how)
        generator.append_tokens(ids)
        generator.generate_next_token()
        took_ms = ms_since(clock)
        generator.rewind_to(tokens)
        self.generators[tokens] = generator
        return [took_ms]

    def decode(self, seen: int, tokens: int) -> list[float]:
        generator, took_ms = self.generators[seen], []
        for number in range(tokens):
            clock = time.perf_counter()
            if number == 0:
                generator.append_tokens(np.array([ANY_TOKEN], np.int32))
            generator.generate_next_token()
            took_ms.append(ms_since(clock))
        generator.rewind_to(seen)
        return took_ms


if __name__ == "__main__":
    asked = parser().parse_args()
    obey(lambda: OnnxGenai(asked.weights, asked.threads))
