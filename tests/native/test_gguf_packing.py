"""GGUF files in packed weights: the numbers of the file, and the tokens that torch computes with them."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf_files import Kind, quantized, write
from safetensors.torch import load_file
from sweep import sweep
from tiny_models import tiny
from torch import Tensor
from torch.nn.functional import cross_entropy
from twin import round_activations

from h2o_chat.base.errors import ModelError
from h2o_chat.cache.forward_call import Step
from h2o_chat.native import library
from h2o_chat.native.layout import Matrix, parts
from h2o_chat.native.native_model import positions_of
from h2o_chat.native.packed import Packed
from h2o_chat.native.packing import packed_for, sources_of
from h2o_chat.native.step import NativeStep
from h2o_chat.transformers_cache.cache import H2OCache

FAMILIES = ("llama", "qwen2", "qwen3", "smollm3")
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 320,
}
"""All columns come in the blocks of 256 of K types, and a head is not hidden_size / heads wide."""
MORE: dict[str, dict[str, Any]] = {
    "qwen2": {"layer_types": ["full_attention"] * 2},
    "qwen3": {"layer_types": ["full_attention"] * 2},
    "smollm3": {"num_hidden_layers": 5, "no_rope_layers": [1, 1, 1, 0, 1], "pad_token_id": 0},
}


def silent(*_: object) -> None:
    """Progress nobody looks at."""


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a random model of a family, made once."""
    made: dict[tuple[str, bool, float], Path] = {}

    def folder(family: str, tied: bool = False, scale: float = 0.12) -> Path:
        which = (family, tied, scale)
        if which not in made:
            made[which] = tmp_path_factory.mktemp(family)
            sizes: dict[str, Any] = SIZES | {"tie_word_embeddings": tied, "use_sliding_window": False}
            sizes |= MORE.get(family, {})
            model = tiny(family, "eager", torch.float32, scale=scale, **sizes)
            model.save_pretrained(made[which])
        return made[which]

    return folder


def crossed(kinds: list[tuple[Any, ...]]) -> list[Any]:
    """Every family with every kind; `make test` has one family with all kinds, and all with the first."""
    always = [("llama", *kind) for kind in kinds] + [(family, *kinds[0]) for family in FAMILIES[1:]]
    return [*always, *sweep(*((family, *kind) for family in FAMILIES[1:] for kind in kinds[1:]))]


def bits_for(kind: str) -> int:
    return 4 if kind == "Q4_0" else 8


def dequantised(folder: Path, kind: str, ends: str | None = None) -> dict[str, Tensor]:
    """The numbers of a folder after a round trip through blocks, by transformers' names: no code of ours."""
    found = {}
    for name, one in load_file(folder / "model.safetensors").items():
        wanted = kind if "layers" in name or not ends else ends
        if one.ndim > 1 and one.shape[1] % 256:
            wanted = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}.get(wanted, wanted)
        if one.ndim == 1:
            found[name] = one.float()
        elif wanted in ("F16", "F32"):
            found[name] = one.to(torch.float16 if wanted == "F16" else torch.float32).float()
        else:
            blocks = quantized(one.float().numpy(), wanted)
            found[name] = torch.from_numpy(gguf.quants.dequantize(blocks, Kind[wanted]))
    return found


def in_torch(folder: Path, numbers: dict[str, Tensor], bits: int = 8) -> Any:
    """A transformers model with these numbers.

    Args:
        bits: of packed weights. 4: activations are rounded as by the native step; 8: they stay in fp32.
    """
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.float()
    missing, unknown = model.load_state_dict(numbers, strict=False)
    assert not unknown
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    if bits == 4:
        round_activations(model, bits)
    return model.eval()


@torch.inference_mode()
def by_step(packed: Packed, ids: list[int], more: int, form: str = "") -> tuple[list[int], Tensor]:
    """The native step reads ids one by one: (so many likeliest tokens after them, logits [N, V])."""
    cache = H2OCache(len(ids) + more + 1, policy="full", positions=positions_of(packed.frame, chats=True))
    step, found, logits = NativeStep(packed, 1, form), list(ids), []
    for at in range(len(ids) + more):
        cache.prepare(Step(1))
        logits.append(step.feed(cache, torch.tensor([[found[at]]]), all_columns=False)[0, -1])
        if at + 1 >= len(found):
            found.append(int(logits[-1].argmax()))
    return found[len(ids) : len(ids) + more], torch.stack(logits)


@torch.inference_mode()
def greedily(model: Any, ids: list[int], more: int) -> list[int]:
    """Greedy tokens in torch, without a cache."""
    found = list(ids)
    for _ in range(more):
        found.append(int(model(torch.tensor([found])).logits[0, -1].argmax()))
    return found[len(ids) :]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("family", "kind", "bits"),
    crossed([("Q8_0", 8), ("Q4_0", 4), ("Q4_0", 8), ("Q5_0", 8)]),
)
def test_blocks_are_packed_without_being_rounded_again(
    family: str, kind: str, bits: int, tied: bool, folders: Any, tmp_path: Path
) -> None:
    """Every number of the file, to the last bit: head and embedding in 8 bits too."""
    folder = folders(family, tied)
    packed = packed_for(write(folder, tmp_path / "model.gguf", kind), bits, silent)
    assert packed.frame.tied == tied
    assert packed.frame.bits == bits
    own = dequantised(folder, kind)
    for part in parts(packed.frame):
        assert torch.equal(packed.weight(part.name), torch.cat([own[one.name] for one in part.sources]))


@pytest.mark.parametrize(
    ("family", "kind"), crossed([("Q4_K",), ("F32",), ("F16",), ("BF16",), ("Q4_1",), ("Q6_K",)])
)
def test_other_types_are_rounded_once(family: str, kind: str, folders: Any, tmp_path: Path) -> None:
    folder = folders(family)
    packed = packed_for(write(folder, tmp_path / "model.gguf", kind), 8, silent)
    own = load_file(folder / "model.safetensors")
    if kind != "BF16":
        own |= dequantised(folder, kind)
    allowed = 0.012 if kind == "BF16" else 0.008
    for part in parts(packed.frame):
        expected, found = torch.cat([own[one.name] for one in part.sources]), packed.weight(part.name)
        if isinstance(part, Matrix):
            assert (found - expected).norm() < allowed * expected.norm()
        else:
            assert torch.equal(found, expected)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("family", "kind"), crossed([("Q8_0",), ("Q4_0",)]))
def test_greedy_tokens_are_those_of_torch(family: str, kind: str, folders: Any, tmp_path: Path) -> None:
    """With the dequantised blocks; beside weights of 4 bits, activations in int8."""
    folder = folders(family)
    packed = packed_for(write(folder, tmp_path / "model.gguf", kind), bits_for(kind), silent)
    model, ids = in_torch(folder, dequantised(folder, kind), bits_for(kind)), [5, 17, 200, 3]
    assert by_step(packed, ids, 24)[0] == greedily(model, ids, 24)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("family", "kind"), crossed([("Q4_K",), ("F16",), ("Q6_K",)]))
def test_perplexity_is_that_of_the_numbers_in_the_file(
    family: str, kind: str, folders: Any, tmp_path: Path
) -> None:
    """Within .2%, beside fp32: weights are rounded to int8 once more."""
    folder = folders(family, scale=0.05)
    packed = packed_for(write(folder, tmp_path / "model.gguf", kind), 8, silent)
    model = in_torch(folder, dequantised(folder, kind))
    ids = torch.randint(1, 320, (1000,), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        exact = cross_entropy(model(ids[None]).logits[0, :-1], ids[1:])
    ours = cross_entropy(by_step(packed, ids.tolist(), 0)[1][:-1], ids[1:])
    assert float((ours - exact).exp()) == pytest.approx(1, abs=0.002)


@pytest.mark.usefixtures("compiled")
def test_the_least_number_of_a_byte(folders: Any, tmp_path: Path) -> None:
    """-128, which no quantiser writes and a file may hold, is computed with by every form."""
    folder = folders("llama")
    file = write(folder, tmp_path / "model.gguf", "Q8_0")
    reader = gguf.GGUFReader(file, "r+")
    for tensor in reader.tensors:
        if tensor.tensor_type == Kind.Q8_0:
            tensor.data[:, 2] = 128
            tensor.data[:, 3] = 127
    reader.data.flush()
    packed = packed_for(file, 8, silent)
    assert float(packed.weight("layers.0.out")[:, 0].max()) < 0
    logits = [by_step(packed, [5, 17, 200, 3], 4, form)[1] for form in library.forms()]
    assert all(torch.equal(logits[0], one) for one in logits)


def test_a_scale_that_is_no_number(folders: Any, tmp_path: Path) -> None:
    file = write(folders("llama"), tmp_path / "model.gguf", "Q8_0")
    reader = gguf.GGUFReader(file, "r+")
    [tensor] = [one for one in reader.tensors if one.name == "blk.1.ffn_up.weight"]
    tensor.data[3, :2] = np.frombuffer(np.float16("nan").tobytes(), np.uint8)
    reader.data.flush()
    with pytest.raises(ModelError, match=r"model.layers.1.mlp.up_proj.weight holds NaN or infinity"):
        packed_for(file, 8, silent)


def test_blocks_of_rows(folders: Any, tmp_path: Path) -> None:
    """Rows of heads stand in another order in llama files: any part of them is that of the whole."""
    folder = folders("llama")
    sources = sources_of(write(folder, tmp_path / "model.gguf", "F32"))
    for name, one in load_file(folder / "model.safetensors").items():
        shape = tuple(one.shape)
        assert torch.equal(sources.rows(name, shape, 0, len(one)), one)
        for first, end in [(0, 1), (7, 39), (len(one) - 17, len(one))]:
            assert torch.equal(sources.rows(name, shape, first, end), one[first:end])


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_a_real_model_says_what_torch_says(
    kind: str, shared_models: Path, shared_text: Path, tmp_path: Path
) -> None:
    """After 40 tokens of a story, greedily. With weights of 4 bits torch in fp32 and torch in fp64 choose the
    same token in 98.3% of the steps: what lies near a half is rounded to the other side."""
    folder = shared_models / "stories3m"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    stories = json.loads((shared_text / "tinystories_valid.json").read_text("utf-8"))[:24]
    packed = packed_for(
        write(folder, tmp_path / "model.gguf", kind, tokenizer=folder), bits_for(kind), silent
    )
    model = in_torch(folder, dequantised(folder, kind), bits_for(kind))
    same, off = 0, [0.0]
    for story in stories:
        ids = [1, *tokenizer(story, add_special_tokens=False)["input_ids"]][:40]
        said = by_step(packed, ids, 32)[0]
        with torch.inference_mode():
            logits = model(torch.tensor([ids + said])).logits[0, len(ids) - 1 : -1]
        theirs = logits.argmax(1).tolist()
        same += sum(ours == other for ours, other in zip(said, theirs, strict=True))
        off += [float(row.max() - row[token]) for row, token in zip(logits, said, strict=True)]
    assert same >= (0.99 if kind == "Q8_0" else 0.97) * 32 * len(stories)
    assert max(off) < (0.01 if kind == "Q8_0" else 0.3), "in logits, of 14"
