"""Short names of models, with their sizes before anything is fetched. Standard library only.

All families here route attention through transformers' `AttentionInterface`; a test checks every row with
`check_family`. The column `gated` is a warning: the hub decides.
"""

import json
from dataclasses import dataclass
from pathlib import Path

NF4_BYTES = 0.5 + 4 / 64
"""Bytes per weight: four bits, and one float32 scale for every 64 weights."""


@dataclass(frozen=True)
class Alias:
    name: str
    repository: str
    family: str  # transformers' model type
    parameters: int
    embedding: int  # Parameters of embedding and, if separate, output layer: they are not quantised
    window: int  # Longest context of its training, in tokens
    gated: bool = False  # Its licence has to be accepted on the hub, which needs a token
    chat: bool = True  # Whether its tokenizer has a chat template

    @property
    def bytes_16(self) -> int:
        """Bytes of the weights in half precision, about the size of the download."""
        return 2 * self.parameters

    @property
    def bytes_4(self) -> int:
        """Bytes of the weights in nf4."""
        return 2 * self.embedding + int(NF4_BYTES * (self.parameters - self.embedding))


def fits(alias: Alias, memory_bytes: int) -> str:
    """The precision at which the weights leave a fifth of the memory free: "16 bit", "4 bit" or "no"."""
    for name, needed in (("16 bit", alias.bytes_16), ("4 bit", alias.bytes_4)):
        if needed < 0.8 * memory_bytes:
            return name
    return "no"


TABLE = Path(__file__).with_name("aliases.json")
ALIASES = {one["name"]: Alias(**one) for one in json.loads(TABLE.read_text("utf-8"))}
