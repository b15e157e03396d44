"""THIRD_PARTY.md names what the program needs and what the bundled model was trained on."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTICES = (ROOT / "THIRD_PARTY.md").read_text("utf-8")


def test_every_library_is_named() -> None:
    """Written anew by tools/make/make_notices.py."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    names = [re.split(r"[<>=]", one)[0] for one in needed]
    assert "torch" in names
    assert [name for name in names if f"| {name} | " not in NOTICES] == []


def test_the_texts_of_the_model_card_are_named_with_their_licences() -> None:
    card = (ROOT / "assets" / "pocket" / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| .*(?:CC BY-SA 4\.0|BSD-3-Clause|Apache-2\.0) \|$", card, re.MULTILINE)
    assert len(rows) == 3
    assert [row for row in rows if row not in NOTICES] == []
