"""Makes a model of a real shape with random weights: nothing to say, and every byte of the real one.

    python tools/make/make_random_model.py smollm2-135m FOLDER      # 270 MB
    python tools/make/make_random_model.py tinyllama-1.1b FOLDER    # 2.2 GB

The weights are bf16 in several safetensors files with an index, as large models are published; the tokenizer
has one token a byte. Never commit what it makes.
"""

import argparse
from pathlib import Path

from h2o_chat.lab.shared.shapes import SHAPES, byte_tokenizer, make

__all__ = ["byte_tokenizer"]


def main() -> None:
    """Writes the folder and says what it holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    size = make(asked.shape, asked.folder, asked.seed)
    files = sorted(asked.folder.glob("*.safetensors"))
    print(f"{asked.folder}: {len(files)} files, {size:,} bytes")


if __name__ == "__main__":
    main()
