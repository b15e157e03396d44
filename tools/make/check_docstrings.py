"""Finds docstrings of h2o_chat that open with one of `OPENINGS`; `make lint` runs it.

Ends with exit code 1 where there is one.
"""

import ast
import re
import sys
from pathlib import Path

OPENINGS = re.compile(r"\s*(Of|So|And|Else|As|The same|What|That)\b")


def main() -> int:
    """Prints each place."""
    root, found = Path(__file__).parents[2], list[str]()
    for file in sorted((root / "h2o_chat").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))) if OPENINGS.match(text):
                    found.append(f"{file.relative_to(root)}:{node.lineno}: {text.strip().splitlines()[0]}")
    if not found:
        return 0
    print("\n".join(found))
    print(f"{len(found)} docstrings open with Of, So, And ...: say subject, verb, object.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
