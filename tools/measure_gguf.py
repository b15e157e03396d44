"""What becomes of GGUF files: bytes, seconds of packing, and perplexity beside the numbers of the file.

    tools/measure_gguf.py FOLDER [--texts FILE] [--kinds Q4_0 Q8_0 Q4_K Q6_K F16] [--documents 40]
    tools/measure_gguf.py llama qwen2 qwen3 [...]

FOLDER is a llama, qwen2, qwen3 or smollm3 model with safetensors. It is written as a GGUF file of each kind,
by the package gguf, and packed (`tests/gguf_files.py`; without columns for a K type llama.cpp's substitute).
TEXTS is a JSON list of strings. The name of a family stands for a random model of it, of 256 columns, and for
documents that it draws itself, so that its perplexity is low, as that of a trained one. `ratio` is the
perplexity of the native step, weights and activations rounded (`tests/native/twin.py`), to that of the file's
numbers in fp32; `alike`: activations rounded on both sides; `s.e.`: the standard error of `ratio` over
documents. Of a random model it is the perplexity expected over all tokens that it might have drawn next, not
that of the one that it drew. `F16 as it is`: the file computed by transformers' step, `--quantize none`.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "native")]

import torch  # noqa: E402
import transformers  # noqa: E402
from gguf_files import write  # type: ignore[import-not-found]  # noqa: E402
from tiny_models import tiny  # type: ignore[import-not-found]  # noqa: E402
from torch import Tensor  # noqa: E402
from twin import round_activations, twin  # type: ignore[import-not-found]  # noqa: E402

from h2o_chat.base.config import Settings  # noqa: E402
from h2o_chat.lab.texts import documents  # noqa: E402
from h2o_chat.models.gguf_tensors import GgufTensors  # noqa: E402
from h2o_chat.models.load import load  # noqa: E402
from h2o_chat.models.resolve import check_weights  # noqa: E402
from h2o_chat.native.loading import bits_of  # noqa: E402
from h2o_chat.native.packing import packed_for  # noqa: E402

LENGTH = 512
"""Tokens of a document."""
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 512,
}
MORE: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"layer_types": ["full_attention"] * 4},
    "qwen3": {"layer_types": ["full_attention"] * 4},
}
"""Of random models, by family."""
SCALE = 0.08
"""Of their weights: the next token is open, and not any one."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["Q4_0", "Q8_0", "Q4_K", "Q6_K", "F16"])
    parser.add_argument("--documents", type=int, default=40)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in arguments.folders:
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as made:
            folder, ids, likely = Path(name), None, None
            if name in MORE:
                folder = Path(made)
                model = random_model(name, folder)
                ids = drawn(model, arguments.documents)
                likely = torch.stack([logarithms(model, one).exp() for one in ids])
            elif arguments.texts:
                tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
                texts = json.loads(arguments.texts.read_text("utf-8"))
                ids = documents(texts[: 8 * arguments.documents], tokenizer, LENGTH)[: arguments.documents]
            measure(folder, arguments.kinds, ids, likely)


def measure(folder: Path, kinds: list[str], ids: Tensor | None, likely: Tensor | None) -> None:
    """A line of each kind.

    Args:
        ids: documents [N, L]; None: no ratios.
        likely: see `nll`.
    """
    print("kind    file MB  packed MB  bits  packing s    ratio    alike      s.e.")
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = name  # packed anew, whatever lies there
        for kind in kinds:
            file = write(folder, Path(name) / f"{kind}.gguf", kind)
            bits = bits_of(Settings(), check_weights(file))
            began = time.process_time()
            packed = packed_for(file, bits, lambda *_: None)
            seconds = time.process_time() - began
            line = (
                f"{kind:6}{file.stat().st_size / 1e6:9.1f}{packed.bytes / 1e6:11.1f}{bits:6}{seconds:11.1f}"
            )
            if ids is not None:
                ours = nll(twin(folder, packed), ids, likely)
                exact = nll(of_file(folder, file, False, bits), ids, likely)
                alike = nll(of_file(folder, file, True, bits), ids, likely)
                line += compared(ours - exact) + compared(ours - alike) + error_of(ours - exact)
            print(line, flush=True)
            if ids is not None and kind == "F16":
                more = nll(as_it_is(file), ids, likely) - exact
                print(f"F16 as it is {compared(more):>40}{error_of(more):>19}", flush=True)


def compared(more: Tensor) -> str:
    """The ratio of perplexities of documents that take so many nats [N] more per token."""
    return f"{math.exp(more.mean()):9.4f}"


def error_of(more: Tensor) -> str:
    """The standard error of that over documents."""
    return f"{more.std() / math.sqrt(len(more)):10.5f}"


def as_it_is(file: Path) -> Any:
    """The model as `--quantize none` loads it, asked without a cache."""
    model = load(Settings(model=str(file), quantize="none", device="cpu"), lambda *_: None).model
    model.set_attn_implementation("eager")
    return model


def of_file(folder: Path, file: Path, activations: bool, bits: int) -> Any:
    """The model with the numbers of a file; activations rounded as beside weights of so many bits."""
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    numbers = {name: one[...] for name, one in GgufTensors(file).all().items()}
    model.load_state_dict(numbers, strict=False)
    model.tie_weights()
    if activations:
        round_activations(model, bits)
    return model.eval()


def random_model(family: str, folder: Path) -> Any:
    """A random model, which is saved there, too."""
    sizes = SIZES | {"tie_word_embeddings": False, "use_sliding_window": False} | MORE[family]
    model = tiny(family, "eager", torch.float32, scale=SCALE, **sizes)
    model.save_pretrained(folder)
    return model


def drawn(model: Any, number: int) -> Tensor:
    """So many documents [N, L] that a model draws itself."""
    torch.manual_seed(1)
    begin = torch.randint(1, model.config.vocab_size, (number, 1))
    ids: Tensor = model.generate(
        begin, attention_mask=torch.ones_like(begin), do_sample=True, top_k=0, top_p=1.0, temperature=1.0,
        min_new_tokens=LENGTH - 1, max_new_tokens=LENGTH - 1, pad_token_id=0,
    )  # fmt: skip
    return ids


def nll(model: Any, ids: Tensor, likely: Tensor | None) -> Tensor:
    """Nats per token of each of the documents [N, L].

    Args:
        likely: [N, L - 1, V] how likely each token is after the ones before it: then the nats expected over
            all of them. None: those of the tokens that stand there.
    """
    found = []
    for number, document in enumerate(ids):
        each = -logarithms(model, document)
        if likely is None:
            found.append(each.gather(1, document[1:, None]).mean())
        else:
            found.append((likely[number] * each).sum(1).mean())
    return torch.stack(found)


@torch.no_grad()
def logarithms(model: Any, document: Tensor) -> Tensor:
    """[L - 1, V] of the probabilities of what comes next in a document [L]."""
    logits: Tensor = model(document[None], use_cache=False).logits[0, :-1]
    return logits.double().log_softmax(1)


if __name__ == "__main__":
    main()
