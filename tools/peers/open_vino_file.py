"""Writes a model folder (llama, mistral) for OpenVINO GenAI, with weights in int4. Runs in its environment.

    python open_vino_file.py MODEL_FOLDER FOLDER int4

The graph is built operation by operation, with a stateful K/V cache as OpenVINO's own export has it, so that
GenAI turns its attention into paged attention. nncf rounds the weights. stdout: one JSON object with
`token_bytes`.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import openvino as ov
from openvino import opset13 as op
from openvino.op.util import Variable, VariableInfo
from weights import Config, Floats, read_config, read_tensors

GROUP = 128
"""Columns with one scale, halved until a weight has a multiple of it; nncf's own choice, and fastest here."""
INPUTS = {"input_ids": 2, "attention_mask": 2, "position_ids": 2, "beam_idx": 1}
"""Names and ranks, as GenAI feeds them."""


def write(folder: Path, path: Path) -> dict[str, int]:
    """Writes the folder `path`.

    Returns:
        `token_bytes`: the weights that one token reads: all, but of an untied embedding only a row.
    """
    config = read_config(folder)
    rounded = nncf.compress_weights(
        Graph(config, dict(read_tensors(folder))).model(),
        mode=nncf.CompressWeightsMode.INT4_SYM,
        group_size=GROUP,
        ratio=1.0,
        advanced_parameters=nncf.AdvancedCompressionParameters(
            group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
        ),
    )
    path.mkdir(parents=True, exist_ok=True)
    ov.save_model(rounded, path / "openvino_model.xml")
    # nncf leaves embedding and head in eight bits.
    embedding_bytes = 0 if config["tie_word_embeddings"] else config["vocab_size"] * config["hidden_size"]
    return {"token_bytes": (path / "openvino_model.bin").stat().st_size - embedding_bytes}


def _whole(*numbers: int) -> Any:
    return op.constant(np.array(numbers, np.int64))


def _one(number: int) -> Any:
    return op.constant(np.array(number, np.int64))


def _float(number: float) -> Any:
    return op.constant(np.array(number, np.float32))


class Graph:
    """A llama, as operations; weights in fp16, which nncf replaces."""

    def __init__(self, config: Config, tensors: dict[str, Floats]) -> None:
        self.config, self.tensors = config, tensors
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.size = config["head_dim"]
        self.writes: list[Any] = []
        self.inputs = {name: self._input(name, rank) for name, rank in INPUTS.items()}
        self.batch = op.gather(op.shape_of(self.inputs["input_ids"]), _whole(0), _one(0))
        self.cos, self.sin = self._rope()
        self.mask = self._mask()

    def model(self) -> Any:
        """The graph."""
        table = self._weight("model.embed_tokens.weight")
        x = op.gather(table, self.inputs["input_ids"], _one(0))
        for number in range(self.config["num_hidden_layers"]):
            x = self._layer(x, f"model.layers.{number}.", number)
        x = self._norm(x, "model.norm.weight")
        head = table if self.config["tie_word_embeddings"] else self._weight("lm_head.weight")
        logits = op.result(op.matmul(x, head, False, True))
        logits.output(0).set_names({"logits"})
        return ov.Model([logits], self.writes, list(self.inputs.values()))

    def _layer(self, x: Any, mine: str, number: int) -> Any:
        """[rows, tokens, hidden] in and out."""
        h = self._norm(x, f"{mine}input_layernorm.weight")
        q = self._turned(self._split(self._linear(h, f"{mine}self_attn.q_proj.weight"), self.heads))
        k = self._turned(self._split(self._linear(h, f"{mine}self_attn.k_proj.weight"), self.kv_heads))
        v = self._split(self._linear(h, f"{mine}self_attn.v_proj.weight"), self.kv_heads)
        k, v = (
            self._kept(k, f"past_key_values.{number}.key"),
            self._kept(v, f"past_key_values.{number}.value"),
        )
        attended = op.transpose(op.scaled_dot_product_attention(q, k, v, self.mask), _whole(0, 2, 1, 3))
        attended = op.reshape(attended, _whole(0, 0, self.heads * self.size), True)
        x = op.add(x, self._linear(attended, f"{mine}self_attn.o_proj.weight"))
        h = self._norm(x, f"{mine}post_attention_layernorm.weight")
        gate = op.swish(self._linear(h, f"{mine}mlp.gate_proj.weight"))
        wide = op.multiply(gate, self._linear(h, f"{mine}mlp.up_proj.weight"))
        return op.add(x, self._linear(wide, f"{mine}mlp.down_proj.weight"))

    def _input(self, name: str, rank: int) -> Any:
        found = op.parameter([-1] * rank, ov.Type.i64 if rank == 2 else ov.Type.i32)
        found.set_friendly_name(name)  # by which GenAI finds it
        found.output(0).set_names({name})
        return found

    def _weight(self, name: str) -> Any:
        return op.convert(op.constant(self.tensors.pop(name).astype(np.float16)), "f32")

    def _linear(self, x: Any, name: str) -> Any:
        return op.matmul(x, self._weight(name), False, True)

    def _norm(self, x: Any, name: str) -> Any:
        mean = op.reduce_mean(op.power(x, _float(2)), _whole(-1), True)
        scale = op.divide(_float(1), op.sqrt(op.add(mean, _float(self.config["rms_norm_eps"]))))
        return op.multiply(op.multiply(x, scale), op.constant(self.tensors[name]))

    def _rope(self) -> tuple[Any, Any]:
        """Cosines and sines, [rows, 1, tokens, head size]."""
        powers = np.arange(0, self.size, 2, dtype=np.float64) / self.size
        speeds = (self.config["rope_theta"] ** -powers).astype(np.float32)[None, None]
        places = op.convert(op.unsqueeze(self.inputs["position_ids"], _one(2)), "f32")
        angles = op.multiply(places, op.constant(speeds))
        angles = op.concat([angles, angles], 2)
        return op.unsqueeze(op.cos(angles), _one(1)), op.unsqueeze(op.sin(angles), _one(1))

    def _mask(self) -> Any:
        """[1, 1, tokens, all tokens]: 0, or very little where a key is later than the query."""
        total = op.gather(op.shape_of(self.inputs["attention_mask"]), _one(1), _one(0))
        now = op.gather(op.shape_of(self.inputs["input_ids"]), _one(1), _one(0))
        keys = op.range(_one(0), total, _one(1), "i64")
        queries = op.range(op.subtract(total, now), total, _one(1), "i64")
        seen = op.less_equal(op.unsqueeze(keys, _one(0)), op.unsqueeze(queries, _one(1)))
        return op.unsqueeze(op.select(seen, _float(0), _float(-65504)), _whole(0, 1))

    def _split(self, x: Any, heads: int) -> Any:
        """[rows, heads, tokens, head size]"""
        return op.transpose(op.reshape(x, _whole(0, 0, heads, self.size), True), _whole(0, 2, 1, 3))

    def _turned(self, x: Any) -> Any:
        """By its position."""
        half, last = self.size // 2, np.iinfo(np.int64).max
        first = op.slice(x, _whole(0), _whole(half), _whole(1), _whole(3))
        second = op.slice(x, _whole(half), _whole(last), _whole(1), _whole(3))
        across = op.concat([op.multiply(second, _float(-1)), first], -1)
        return op.add(op.multiply(x, self.cos), op.multiply(across, self.sin))

    def _kept(self, now: Any, name: str) -> Any:
        """Those of before and `now`, for every query head: [rows, heads, all tokens, head size]."""
        about = VariableInfo()
        about.data_shape = ov.PartialShape([-1, self.kv_heads, -1, self.size])
        about.data_type, about.variable_id = ov.Type.f32, name
        variable = Variable(about)
        nothing = op.broadcast(_float(0), op.concat([self.batch, _whole(self.kv_heads, 0, self.size)], 0))
        before = op.gather(op.read_value(nothing, variable), self.inputs["beam_idx"], _one(0))
        both = op.concat([before, now], 2)
        self.writes.append(op.assign(both, variable))
        if self.heads == self.kv_heads:
            return both
        shared = self.heads // self.kv_heads
        tokens = op.gather(op.shape_of(both), _whole(2), _one(0))
        shape = op.concat([self.batch, _whole(self.kv_heads, shared), tokens, _whole(self.size)], 0)
        many = op.broadcast(op.unsqueeze(both, _one(2)), shape, "BIDIRECTIONAL")
        return op.reshape(many, _whole(0, self.heads, -1, self.size), True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("path", type=Path)
    parser.add_argument("form", choices=("int4",))
    asked = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):  # nncf's tables
        written = write(asked.folder, asked.path)
    sys.stdout.write(json.dumps(written) + "\n")
