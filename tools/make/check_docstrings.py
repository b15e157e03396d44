"""Counts docstrings that do not begin with a subject or a verb; `make lint` runs it.

Ends with exit code 1 where more than `MOST` docstrings of h2o_chat open with one of `OPENINGS`.
"""

import ast
import re
import sys
from pathlib import Path

OPENINGS = re.compile(r"\s*(Of|So|And|Else|As|The same|What|That)\b")
MOST = 239
"""Lowered as they are mended; none may be added."""


def main() -> int:
    """Prints each place, and how many there are, where there are too many."""
    root, found = Path(__file__).parents[2], list[str]()
    for file in sorted((root / "h2o_chat").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))) if OPENINGS.match(text):
                    found.append(f"{file.relative_to(root)}:{node.lineno}: {text.strip().splitlines()[0]}")
    if len(found) <= MOST:
        return 0
    print("\n".join(found))
    print(
        f"{len(found)} docstrings open with Of, So, And ...; at most {MOST} may. Say subject, verb, object."
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
