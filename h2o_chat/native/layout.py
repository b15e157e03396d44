"""The layout of a packed file, which follows from the frame alone; used to write and to check it. No torch.

A matrix [rows, columns] is stored as tiles of `TILE` rows; rows are padded to whole tiles and columns to
whole groups of `GROUP` with zeros. G = columns / 32 groups, T tiles:

    int4    weights u8 [T, G, 4, 16, 4]: byte [t, g, j, r, i] holds q[16t + r, 32g + 4j + i] + 8 in its low
            half and q[16t + r, 32g + 16 + 4j + i] + 8 in its high half; q in -8..7
    int8    weights u8 [T, G, 8, 16, 4]: byte [t, g, j, r, i] = q[16t + r, 32g + 4j + i] + 128; q in -127..127
    scales  fp16 [T, G, 16]: w ~ q * scale[t, g, r]

Vectors are fp32. Each begins at a multiple of `ALIGNED` bytes, in the order in which a token reads them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from h2o_chat.native.model_frame import Frame

VERSION = 1
"""Version of the layout and of the rounding of weights: raise it when either changes."""
TILE = 16
"""Rows of a tile."""
GROUP = 32
"""Columns that share a scale."""
ALIGNED = 64
"""Alignment of tensors in bytes."""

F32, F16, BF16 = 0, 1, 30
Q4_0, Q5_0, Q8_0, MXFP4 = 2, 6, 8, 39

LEVELS_BYTES = {2: 256, 3: 256, 6: 320, 7: 320, 8: 512, 12: 256, 13: 320, 14: 384}
"""Bytes of a group of 16 rows and 32 columns by kind: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K."""
SCALES_BYTES = {2: 32, 3: 64, 6: 32, 7: 64, 8: 32, 12: 40, 13: 40, 14: 36}
"""Bytes of its scales and minima."""


def in_tiles(kind: int) -> int:
    """The kind as which a tensor of a GGUF file is laid out: its own, 5 bits for MXFP4, or 8 bits."""
    return Q5_0 if kind == MXFP4 else kind if kind in LEVELS_BYTES else Q8_0


@dataclass(frozen=True)
class MatrixAddress:
    """The place of a matrix in memory, in tiles."""

    weights: int  # Address of its levels
    scales: int  # Address of its scales
    rows: int  # Padded to a multiple of 16
    columns: int  # Padded to a multiple of 32
    kind: int

    @property
    def bytes(self) -> int:
        groups = self.rows * self.columns // (TILE * GROUP)
        return groups * (LEVELS_BYTES[self.kind] + SCALES_BYTES[self.kind])


@dataclass(frozen=True)
class Source:
    """A tensor of the model's own weights: some rows of a matrix, or a vector."""

    name: str
    rows: int  # Rows of a matrix, or numbers of a vector
    columns: int = 0  # Columns, if a vector is stored as [rows, columns]
    start: int = 0  # Rows of the tensor that stand before them
    whole: int = 0  # Rows of the tensor; 0: these are all

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a stored vector."""
        return (self.rows, self.columns) if self.columns else (self.rows,)


@dataclass(frozen=True)
class Matrix:
    """A matrix: its sources below one another, or (`alternate`) their tiles alternating."""

    name: str
    bits: int
    columns: int
    sources: tuple[Source, ...]
    alternate: bool = False

    @property
    def padded_rows(self) -> int:
        if self.alternate:
            return sum(padded(source.rows, TILE) for source in self.sources)
        return padded(sum(source.rows for source in self.sources), TILE)

    @property
    def padded_columns(self) -> int:
        return padded(self.columns, GROUP)

    @property
    def numbers(self) -> int:
        return self.columns * sum(source.rows for source in self.sources)


@dataclass(frozen=True)
class Vector:
    """A vector: its sources one after the other."""

    name: str
    sources: tuple[Source, ...]
    plus: float = 0.0  # Number that is added to those of safetensors; GGUF files have it already
    over: float = 1.0  # Divisor of the numbers

    @property
    def numbers(self) -> int:
        return sum(prod(source.shape) for source in self.sources)


@dataclass(frozen=True)
class Place:
    name: str  # Name of a vector; of a matrix followed by `.weights` or `.scales`
    offset: int  # Offset in bytes from the end of the header
    bytes: int


def padded(count: int, to: int) -> int:
    """The next multiple of `to`."""
    return -(-count // to) * to


def parts(frame: Frame) -> Iterator[Matrix | Vector]:
    """All matrices and vectors, in the order in which a token reads them."""
    embedding = Matrix(
        "embedding", frame.head_bits, frame.hidden, (Source("model.embed_tokens.weight", frame.vocabulary),)
    )
    if not frame.tied:
        yield embedding
    for number in range(frame.layers):
        yield from layer_parts(frame, f"layers.{number}.", f"model.layers.{number}.")
    yield Vector(
        "norm", (Source("model.norm.weight", frame.hidden),), plus=float(frame.gemma), over=frame.logits_scale
    )
    if frame.tied:
        yield embedding
    else:
        yield Matrix("head", frame.head_bits, frame.hidden, (Source("lm_head.weight", frame.vocabulary),))


def layer_parts(frame: Frame, here: str, there: str) -> Iterator[Matrix | Vector]:
    """Matrices and vectors of one layer. `here` begins names in the packed file, `there` the model's."""
    keys = frame.kv_heads * frame.head_size
    rows = {"q": frame.heads * frame.head_size, "k": keys, "v": keys}
    normed = (rows["q"], keys) if frame.whole_norms else (frame.head_size, frame.head_size)

    def qkv(kind: str) -> tuple[Source, ...]:
        if frame.fused:
            return (Source(f"{there}self_attn.qkv_proj.{kind}", sum(rows.values())),)
        return tuple(Source(f"{there}self_attn.{one}_proj.{kind}", count) for one, count in rows.items())

    def norm(name: str, module: str, size: int = frame.hidden) -> Vector:
        return Vector(f"{here}{name}", (Source(f"{there}{module}.weight", size),), plus=float(frame.gemma))

    if frame.norms_before:
        yield norm("norm_attention", "input_layernorm")
    yield Matrix(f"{here}qkv", frame.bits, frame.hidden, qkv("weight"))
    if frame.bias:
        yield Vector(f"{here}bias_qkv", qkv("bias"))
    if frame.gpt_oss:
        yield Vector(f"{here}sinks", (Source(f"{there}self_attn.sinks", frame.heads),))
        yield Vector(f"{here}bias_out", (Source(f"{there}self_attn.o_proj.bias", frame.hidden),))
        yield Vector(f"{here}bias_router", (Source(f"{there}mlp.router.bias", frame.experts),))
    if frame.head_norms:
        yield norm("norm_query", "self_attn.q_norm", normed[0])
        yield norm("norm_key", "self_attn.k_norm", normed[1])
    out = Source(f"{there}self_attn.o_proj.weight", frame.hidden)
    yield Matrix(f"{here}out", frame.bits, rows["q"], (out,))
    if frame.norms_after:
        yield norm("norm_attended", "post_attention_layernorm")
    if frame.norms_before:
        yield norm(
            "norm_mlp", "pre_feedforward_layernorm" if frame.norms_after else "post_attention_layernorm"
        )
    if frame.experts:
        router = "router" if frame.gpt_oss else "gate"
        yield Vector(f"{here}router", (Source(f"{there}mlp.{router}.weight", frame.experts, frame.hidden),))
    for mlp in frame.mlps:
        gate, up, down = (f"{there}mlp.{mlp}{one}_proj.weight" for one in ("gate", "up", "down"))
        gate_up = Source(gate, frame.intermediate), Source(up, frame.intermediate)
        if frame.fused:
            both, inner = f"{there}mlp.gate_up_proj.weight", frame.intermediate
            gate_up = Source(both, inner, 0, 0, 2 * inner), Source(both, inner, 0, inner, 2 * inner)
        yield Matrix(f"{here}{mlp}gate_up", frame.bits, frame.hidden, gate_up, alternate=True)
        yield Matrix(f"{here}{mlp}down", frame.bits, frame.intermediate, (Source(down, frame.hidden),))
        for one, name in {"gate": gate, "up": up, "down": down}.items() if frame.gpt_oss else ():
            numbers = frame.hidden if one == "down" else frame.intermediate
            bias = Source(f"{name.removesuffix('weight')}bias", numbers)
            yield Vector(f"{here}{mlp}bias_{one}", (bias,))
    if frame.norms_after:
        yield norm("norm_fed", "post_feedforward_layernorm")


def layout(frame: Frame) -> list[Place]:
    """The tensors of a packed file, in their order."""
    places = list[Place]()
    end = 0
    for part in parts(frame):
        if isinstance(part, Matrix):
            area = part.padded_rows * part.padded_columns
            sizes = {f"{part.name}.weights": area * part.bits // 8, f"{part.name}.scales": area // GROUP * 2}
        else:
            sizes = {part.name: 4 * part.numbers}
        for name, size in sizes.items():
            places.append(Place(name, end, size))
            end = padded(end + size, ALIGNED)
    return places


def data_bytes(frame: Frame) -> int:
    """Bytes of all tensors, padding included."""
    last = layout(frame)[-1]
    return padded(last.offset + last.bytes, ALIGNED)
