"""What must not import torch: it costs two seconds, and help and errors have to come at once."""

import subprocess
import sys

import pytest

TRY = """
import sys
try:
    {code}
except SystemExit:
    pass
heavy = {{"torch", "transformers"}} & set(sys.modules)
sys.exit(f"imported {{sorted(heavy)}}" if heavy else 0)
"""


@pytest.mark.parametrize(
    "code",
    [
        "import h2o_chat",
        "import h2o_chat.tui.app",
        "import h2o_chat.chat.chat, h2o_chat.cli.run, h2o_chat.models.resolve",
        "from h2o_chat.cli.cli import app; app(['--help'])",
        "from h2o_chat.cli.cli import app; app(['run', '--help'])",
        "from h2o_chat.cli.cli import app; app(['run', 'hi', '--budget', '0'])",
        "from h2o_chat.cli.cli import app; app(['run', 'hi', '--model', 'no/such-model'])",
        "from h2o_chat.cli.cli import app; app(['config', 'show'])",
        "from h2o_chat.cli.cli import app; app(['replay', 'no such file'])",
        "from h2o_chat.cli.cli import app; app(['demo'])",
        "import h2o_chat.events.recorder, h2o_chat.tui.replay",
    ],
)
def test_no_torch(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRY.format(code=code)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_no_textual_without_a_screen() -> None:
    code = "import sys, h2o_chat.cli.cli, h2o_chat.cli.run, h2o_chat.chat.chat"
    code += "; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
