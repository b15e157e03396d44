"""What must not import torch: it costs two seconds, and help and errors have to come at once.

And what a start of the native step must not import of torch and transformers: another second.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from h2o_chat.models import resolve
from h2o_chat.native import library

TRY = """
import json, sys
for code in json.loads(sys.argv[1]):
    try:
        exec(code)
    except SystemExit:
        pass
    heavy = {"torch", "transformers", "textual", "mcp", "ray", "fsspec"}
    print("imported", json.dumps(sorted(heavy & set(sys.modules))))
"""
WITHOUT_A_SCREEN = "import h2o_chat.cli.cli, h2o_chat.cli.run, h2o_chat.chat.conversation.chat"


def imported(program: str, runs: Sequence[object]) -> tuple[list[set[str]], str]:
    """The modules that a process has imported after each of its runs, and its stderr."""
    command = [sys.executable, "-c", program, json.dumps(runs)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    return [set(json.loads(rest)) for word, _, rest in lines if word == "imported"], done.stderr


def test_no_torch() -> None:
    """One after the other in one process: what the first had imported, the others would have too."""
    codes = [
        "import h2o_chat",
        WITHOUT_A_SCREEN,
        "import h2o_chat.models.resolve",
        "from h2o_chat.cli.cli import app; app(['--help'])",
        "from h2o_chat.cli.cli import app; app(['run', '--help'])",
        "from h2o_chat.cli.cli import app; app(['run', 'hi', '--budget', '0'])",
        "from h2o_chat.cli.cli import app; app(['run', 'hi', '--model', 'no/such-model'])",
        "from h2o_chat.cli.cli import app; app(['config', 'show'])",
        "from h2o_chat.cli.cli import app; app(['cluster', 'up', '--help'])",
        "import h2o_chat.tui.chat_app",
        "from h2o_chat.cli.cli import app; app(['replay', 'no such file'])",
        "from h2o_chat.cli.cli import app; app(['demo'])",
        "import h2o_chat.events.recording, h2o_chat.tui.replay",
    ]
    found = dict(zip(codes, imported(TRY, codes)[0], strict=True))
    assert not {
        code: names
        for code, names in found.items()
        if {"torch", "transformers", "mcp", "ray", "fsspec"} & names
    }
    assert found[WITHOUT_A_SCREEN] == set(), "no textual either"
    assert found["import h2o_chat.tui.chat_app"] == {"textual"}, "it is seen"


# -- a start of the native step

STARTS = """
import json, sys
from h2o_chat.cli.cli import app
for asked in json.loads(sys.argv[1]):
    try:
        app(asked)
    except SystemExit as end:
        assert end.code == 0, end.code
    print("imported", json.dumps(sorted(sys.modules)))
"""

FORBIDDEN = {
    "accelerate",
    "bitsandbytes",
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.onnx",
    "transformers.generation.logits_process",
    "transformers.generation.utils",
    "transformers.masking_utils",
    "transformers.modeling_utils",
}


def packed(model: Path) -> str:
    """The model, as an argument; its weights are packed, as another start has done before."""
    if library.why_not():
        pytest.skip(f"there is no native step: {library.why_not()}")
    from h2o_chat.native.packing import packed_for

    packed_for(model, 8, lambda *_: None)
    return str(model)


def families_of(modules: set[str]) -> set[str]:
    """What belongs to a family of transformers; tables that name all families are not meant."""
    return {one for one in modules if re.match(r"transformers\.models\.(?!auto\b)", one)}


def models_in(modules: set[str]) -> set[str]:
    """The models of families."""
    return {one for one in families_of(modules) if ".modeling_" in one}


def test_the_native_step_starts_without_transformers_models(tmp_path: Path) -> None:
    """Sampled or not. A tokenizer with a class of its own takes AutoTokenizer, and a GGUF file only what
    reads its tokenizer, which stands among the families."""
    from gguf_files import write

    pocket, other = resolve.find(None).folder, tmp_path / "other"
    shutil.copytree(pocket, other)
    about = json.loads((pocket / "tokenizer_config.json").read_text("utf-8"))
    (other / "tokenizer_config.json").write_text(json.dumps(about | {"tokenizer_class": "GPT2Tokenizer"}))

    run = ["run", "Hi", "--max-tokens", "2", "-m"]
    greedy = [*run, packed(pocket)]
    file = str(write(pocket, tmp_path / "pocket.gguf", "Q8_0", tokenizer=pocket))
    runs = [
        greedy,
        [*greedy, "--temperature", "0.7", "--seed", "1"],
        [*run, packed(other)],
        [*run, file, "--template", "plain"],
    ]
    (after, sampled, with_a_class, of_a_file), said = imported(STARTS, runs)
    assert said.count("native") == len(runs), said
    assert {"torch", "transformers", "h2o_chat.native.step"} <= after
    assert not after & FORBIDDEN
    assert not sampled & FORBIDDEN
    assert "transformers.models" not in sampled
    assert with_a_class & FORBIDDEN == sampled & FORBIDDEN
    assert any("gpt2" in one for one in families_of(with_a_class))
    assert not models_in(with_a_class)
    assert of_a_file & FORBIDDEN == sampled & FORBIDDEN
    assert not models_in(of_a_file)
