"""What rounding costs: perplexity with int8, int4 and nf4 weights as a ratio to fp32, full cache.

    tools/compare_rounding.py MODEL=TEXTS [MODEL=TEXTS ...] [--half first|second|both] [--length 512]

TEXTS is a JSON list of strings, or of conversations (lists of {role, content}), which go through the chat
template. They are joined and cut into documents. int8 and int4 are the packed weights of the native step,
with head and activations in int8, emulated in torch (`tests/native/twin.py`); nf4 is that of bitsandbytes,
which leaves head and activations alone. Choose a rounding on the first half, report the second.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "native")]

import torch  # noqa: E402
import transformers  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from twin import twin  # type: ignore[import-not-found]  # noqa: E402

from h2o_chat.lab.texts import documents  # noqa: E402
from h2o_chat.native.packing import packed_for  # noqa: E402

FORMATS = ("int8", "int4", "nf4")
NF4_BLOCK = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="MODEL=TEXTS")
    parser.add_argument("--half", choices=("first", "second", "both"), default="second")
    parser.add_argument("--length", type=int, default=512)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(f"{'model':14}{'documents':>10}{'fp32':>10}" + "".join(f"{one:>9}" for one in FORMATS), flush=True)
    ratios: dict[str, list[float]] = {one: [] for one in FORMATS}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache  # packed anew, whatever lies there
        for pair in arguments.pairs:
            folder, _, texts = pair.partition("=")
            ids = half_of(cut(Path(folder), Path(texts), arguments.length), arguments.half)
            exact = nll(plain(Path(folder)), ids)
            line = f"{Path(folder).name:14}{len(ids):10}{math.exp(exact):10.3f}"
            for how in FORMATS:
                ratio = math.exp(nll(rounded_model(Path(folder), how), ids) - exact)
                ratios[how].append(ratio)
                line += f"{ratio:9.4f}"
            print(line, flush=True)
    means = (math.exp(sum(map(math.log, found)) / len(found)) for found in ratios.values())
    print(f"{'geometric mean':34}" + "".join(f"{one:9.4f}" for one in means))


def half_of(ids: Tensor, which: str) -> Tensor:
    middle = len(ids) // 2
    return {"first": ids[:middle], "second": ids[middle:], "both": ids}[which]


def cut(folder: Path, texts: Path, length: int) -> Tensor:
    """Documents [N, L]."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    found = json.loads(texts.read_text("utf-8"))
    if isinstance(found[0], str):
        return documents(found, tokenizer, length)
    ids: list[int] = []
    for talk in found:
        ids += tokenizer.apply_chat_template(talk, tokenize=True, return_dict=True)["input_ids"]
    count = len(ids) // length
    return torch.tensor(ids[: count * length]).view(count, length)


def plain(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True
    ).eval()


def rounded_model(folder: Path, how: str) -> Any:
    if how != "nf4":
        packed = packed_for(folder, int(how.removeprefix("int")), lambda *_: None)
        return twin(folder, packed)
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    model = plain(folder)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name != "lm_head":
            packed4, state = quantize_4bit(module.weight.data, blocksize=NF4_BLOCK, quant_type="nf4")
            module.weight = nn.Parameter(dequantize_4bit(packed4, state).float())
    return model


@torch.no_grad()
def nll(model: Any, ids: Tensor) -> float:
    """Nats per token of documents [N, L]."""
    total = 0.0
    for document in ids[:, None]:
        logits = model(document, use_cache=False).logits[:, :-1]
        total += float(nn.functional.cross_entropy(logits.flatten(0, 1), document[:, 1:].flatten()))
    return total / len(ids)


if __name__ == "__main__":
    main()
