"""The weights of a GGUF file for the step of transformers: its names, its order, read lazily."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from h2o_chat.models.gguf import Header, damaged, header_of
from h2o_chat.models.gguf_config import config_of, refuse_others, turned_heads
from h2o_chat.models.gguf_tensors import numbers_of, unpaired
from h2o_chat.models.gguf_variants import ROPE_FREQS
from h2o_chat.models.model_class import class_of
from h2o_chat.models.model_files import read_range

_AT_ONCE_BYTES = 16 << 20


def state_dict_of(file: Path, made: Any, dtype: torch.dtype) -> dict[str, "LazyTensor"]:
    """The weights of a file of one of `gguf_config.READ`, other than gpt-oss; without those that it lacks.

    `made` is transformers' configuration; matrices are of `dtype`, vectors fp32. Raises ModelError if one is
    of another shape, or not known.
    """
    import gguf  # not before a model needs it

    header = header_of(file)
    number = next(one for one, name in gguf.MODEL_ARCH_NAMES.items() if name == header.architecture)
    table = gguf.get_tensor_name_map(number, made.num_hidden_layers)
    with torch.device("meta"):
        weights = class_of(made)(copy.deepcopy(made)).state_dict()
    if made.tie_word_embeddings:
        del weights["lm_head.weight"]
    found = dict[str, LazyTensor]()
    for name, weight in weights.items():
        # The package's tables take names that end as modules' weights do, and some know no gate with up.
        called = name.replace("router.scale", "router.proj.scale").replace("mlp.gate_up_proj", "mlp.up_proj")
        called = called.replace("router.per_expert_scale", "experts.down_proj.scale")
        if not called.endswith((".weight", ".bias", ".scale")):
            called += ".weight"
        stem, _, last = called.rpartition(".")
        there = f"{table.get_name(stem.replace('gate_up', 'down'))}.{last}"
        if "gate_up" in stem:
            there = there.replace("ffn_down", "ffn_gate_up")
        parts = [there]
        if there not in header.tensors and "gate_up_exps" in there:
            parts = [there.replace("gate_up", one) for one in ("gate", "up")]
        if header.tensors.keys() >= {*parts}:
            minus = float(header.architecture in ("gemma2", "gemma3") and name.endswith("norm.weight"))
            found[name] = LazyTensor(header, name, parts, dtype, minus)
            if len(parts) == 1 and (sides := header.tensors[there].shape) != (wanted := tuple(weight.shape)):
                raise damaged(file, f"{there} has the shape {list(sides)}, its values say {list(wanted)}")
    refuse_others(header, {ROPE_FREQS, *(part for one in found.values() for part in one.parts)})
    return found


@dataclass(frozen=True)
class LazyTensor:
    """A tensor that is read when transformers asks for it, so that only one is in memory."""

    header: Header
    name: str
    parts: list[str]  # Tensors of the file that are this one, one below the other
    dtype: torch.dtype
    minus: float = 0.0  # Number that is subtracted: gemma's files hold norms + 1

    def get_shape(self) -> list[int]:
        """Transformers asks for it, as of a slice of safetensors, before it splits the tensor."""
        return list(self[...].shape if len(self.parts) > 1 else self.header.tensors[self.parts[0]].shape)

    def __getitem__(self, where: Any) -> Tensor:
        read = [self._read(one) for one in self.parts]
        value = torch.cat(read, 1) if len(read) > 1 else read[0]
        value = value - self.minus if self.minus else value
        if heads := turned_heads(config_of(self.header), self.name):
            value = unpaired(value, heads)
        return value[where]

    def _read(self, name: str) -> Tensor:
        """A tensor as it is stored, some rows at a time: in fp32 it might not fit."""
        stored = self.header.tensors[name]
        vector = len(stored.shape) == 1
        rows, sides = (1, stored.shape) if vector else (stored.shape[0], stored.shape[1:])
        found = torch.empty(rows, *sides, dtype=torch.float32 if vector else self.dtype)
        size = stored.bytes // rows
        for first in range(0, rows, step := max(1, _AT_ONCE_BYTES // size)):
            end = min(rows, first + step)
            raw = read_range(stored.file, stored.start + first * size, (end - first) * size)
            numbers = numbers_of(name, stored, numpy.frombuffer(raw, numpy.uint8).reshape(end - first, -1))
            found[first:end] = torch.from_numpy(numbers.reshape(-1, *sides))
        return found.view(stored.shape)
