"""Rules of a grammar in llguidance's form of Lark. No torch."""

import json
import re
from collections.abc import Mapping
from typing import Any

AS_WRITTEN = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""How the JSON is spaced: as models write it; free spaces would let a small model write them for ever."""


def json_rule(schema: Any) -> str:
    """A rule of Lark for JSON of a schema."""
    return f"%json {json.dumps({'x-guidance': AS_WRITTEN, **schema})}"


def text_rule(text: str, added: Mapping[str, int] | None = None) -> str:
    """A rule of Lark for this very text, in which `added` tokens stand for their texts."""
    added = added or {}
    parts = (
        re.split(f"({'|'.join(map(re.escape, sorted(added, key=len, reverse=True)))})", text)
        if added
        else [text]
    )
    return " ".join(f"<[{added[one]}]>" if one in added else json.dumps(one) for one in parts if one)
