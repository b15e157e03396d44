"""Stand-ins for other programs in tests of `bench speed`, and a model that is read at once."""

import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from h2o_chat.lab.shared.shapes import byte_tokenizer

PEER_MS = 2.5
STAND_IN = f"""#!{sys.executable}
import json, sys
from pathlib import Path
program, file, *rest = sys.argv[1:]
if program.endswith("_file.py"):
    Path(rest[0]).write_text("weights")
    print(json.dumps({{"token_bytes": 1000}}))
    sys.exit()
log = open(sys.argv[0] + ".log", "a")
log.write(" ".join(["start", *rest]) + "\\n")
for line in sys.stdin:
    log.write(line)
    log.flush()
    order, *tokens = line.split()
    if order == "about":
        print(json.dumps({{"given": "its best"}}), flush=True)
        continue
    if tokens == ["13"]:
        sys.exit("thirteen")
    print(json.dumps({{"ms": [{PEER_MS}] * int(tokens[-1])}}), flush=True)
"""
"""A stand-in for the peers' Python: it writes a file, answers every order with the same time."""


def stand_ins(folder: Path, environments: Iterable[str], stand_in: str = STAND_IN) -> Path:
    """A peers' folder with these environments."""
    for name in environments:
        python = folder / "envs" / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(stand_in)
        python.chmod(0o755)
    return folder


def tiny_model(folder: Path, hidden: int = 32) -> Path:
    """Two layers of random weights and a tokenizer."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=320,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder
