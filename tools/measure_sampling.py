"""What choosing a token costs: processor time of the sampler, in ms a token, by vocabulary and sampling.

python tools/measure_sampling.py [TOKENS]
"""

import sys
import time

import numpy as np
import torch

from h2o_chat.base.config import Sampling
from h2o_chat.engine.sampling import Sampler

VOCABULARIES = (49_152, 150_000, 262_144)
SAMPLINGS = {
    "greedy": Sampling(),
    "usual": Sampling(temperature=0.7, top_p=0.9, min_p=0.05),
    "usual, penalty": Sampling(temperature=0.7, top_p=0.9, min_p=0.05, repetition_penalty=1.1),
    "top-p alone": Sampling(temperature=0.7, top_p=0.9),
    "top-k, top-p, penalty": Sampling(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.1),
}


def main() -> None:
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    torch.set_num_threads(1)
    for vocabulary in VOCABULARIES:
        logits = [torch.randn(vocabulary, generator=torch.Generator().manual_seed(n)) * 3 for n in range(8)]
        for name, sampling in SAMPLINGS.items():
            sampler, took = Sampler(1, torch.device("cpu")), []
            for number in range(tokens):
                began = time.thread_time()
                sampler.history.append(sampler.choose(logits[number % 8], sampling))
                took.append(1000 * (time.thread_time() - began))
            print(f"{vocabulary:>9,}  {name:22} mean {np.mean(took):.3f}  p99 {np.quantile(took, 0.99):.3f}")


if __name__ == "__main__":
    main()
