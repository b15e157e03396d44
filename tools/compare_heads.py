"""What a head in 4 bits would bring and cost: a token's time and the perplexity, beside the head in 8 bits.

    tools/compare_heads.py --time MODEL [--threads 2] [--turns 12]
    tools/compare_heads.py MODEL=TEXTS [MODEL=TEXTS ...] [--half first|second|both] [--length 512]

The layers are in 4 bits in both. What the program packs has head and embedding in 8 bits, as documented in
docs/NATIVE.md; this packs a second file with both in 4, in a folder that is removed again.

--time: both decode in turns of 32 tokens, greedily, as the program does (`Engine.generate`), 512 tokens seen
and 512 slots: the median of each, and of their ratio turn by turn. Nothing else may run. The rest is as in
tools/compare_rounding.py: perplexity as a ratio to fp32, full cache.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "0")  # torch's threads sleep, as in the program (`native/waiting.py`)
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "native")]

import torch  # noqa: E402
import transformers  # noqa: E402
from compare_rounding import cut, half_of, nll, plain  # noqa: E402
from twin import twin  # type: ignore[import-not-found]  # noqa: E402

from h2o_chat.base.config import Settings  # noqa: E402
from h2o_chat.lab.idle import Sample, wait_until_idle  # noqa: E402
from h2o_chat.lab.racers import TURN_TOKENS  # noqa: E402
from h2o_chat.lab.rivals import GREEDY, Ours  # noqa: E402
from h2o_chat.models.fingerprint import fingerprint  # noqa: E402
from h2o_chat.native.loading import LoadedNative, open_model  # noqa: E402
from h2o_chat.native.packed import Packed, open_packed  # noqa: E402
from h2o_chat.native.packing import pack  # noqa: E402

HEADS = (8, 4)
SEEN = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="*", metavar="MODEL=TEXTS")
    parser.add_argument("--time", type=Path, metavar="MODEL")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--half", choices=("first", "second", "both"), default="second")
    parser.add_argument("--length", type=int, default=512)
    arguments = parser.parse_args()
    if bool(arguments.pairs) == bool(arguments.time):
        parser.error("name pairs of MODEL=TEXTS, or --time MODEL")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if arguments.time:
        compare_times(arguments.time, arguments.threads, arguments.turns)
    else:
        compare_perplexity(arguments.pairs, arguments.half, arguments.length)


@contextmanager
def packed_both(folder: Path) -> Iterator[list[Packed]]:
    """The model with a head of 8 bits, and of 4."""
    with tempfile.TemporaryDirectory() as name:
        print_ = fingerprint(folder)
        found = []
        for head_bits in HEADS:
            path = Path(name) / f"head-{head_bits}.h2o"
            pack(folder, 4, print_, path, lambda *_: None, head_bits)
            found.append(open_packed(path, print_))
        yield found


def compare_times(folder: Path, threads: int, turns: int) -> None:
    settings = Settings(model=str(folder), engine="native", quantize="int4", threads=threads)
    loaded = open_model(settings, lambda *_: None)
    assert isinstance(loaded, LoadedNative)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, loaded.packed.frame.vocabulary, (SEEN,), generator=generator).tolist()
    with packed_both(folder) as both:
        ours = [Ours(replace(loaded, packed=packed), settings, threads, GREEDY) for packed in both]
        wait_until_idle()
        for one in ours:
            one.read(ids, ())
            one.decode(TURN_TOKENS, ())  # warm
        samples: list[list[Sample]] = [[one.decode(TURN_TOKENS, ()) for one in ours] for _ in range(turns)]
        for packed, mine in zip(both, zip(*samples, strict=True), strict=True):
            token_ms = statistics.median(sample.ms / TURN_TOKENS for sample in mine)
            disturbed, size_mb = sum(sample.disturbed for sample in mine), packed.bytes / 1e6
            print(
                f"head in {packed.frame.head_bits} bits: {token_ms:.2f} ms a token, {size_mb:.1f} MB,",
                end=" ",
            )
            print(f"{disturbed} of {turns} turns disturbed")
        ratios = sorted(eight.ms / four.ms for eight, four in samples)
        middle = statistics.median(ratios)
        print(f"8 by 4 bits: {middle:.3f} times ({ratios[0]:.3f} to {ratios[-1]:.3f} by turns)")
        for one in ours:
            one.close()


def compare_perplexity(pairs: list[str], half: str, length: int) -> None:
    print(f"{'model':14}{'documents':>10}{'fp32':>10}" + "".join(f"{f'head int{one}':>11}" for one in HEADS))
    logs: list[list[float]] = []
    for pair in pairs:
        folder, _, texts = pair.partition("=")
        ids = half_of(cut(Path(folder), Path(texts), length), half)
        exact = nll(plain(Path(folder)), ids)
        with packed_both(Path(folder)) as both:
            logs.append([nll(twin(Path(folder), packed), ids) - exact for packed in both])
        ratios = "".join(f"{math.exp(one):11.4f}" for one in logs[-1])
        print(f"{Path(folder).name:14}{len(ids):10}{math.exp(exact):10.3f}{ratios}", flush=True)
    means = (math.exp(statistics.mean(column)) for column in zip(*logs, strict=True))
    print(f"{'geometric mean':34}" + "".join(f"{one:11.4f}" for one in means))


if __name__ == "__main__":
    main()
