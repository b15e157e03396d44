"""Writes `h2o_chat/models/families.json`: tries a tiny random model of every text family of transformers.

    python tools/make/make_families.py

Takes some two minutes on two cores. What could not be tried is said on stderr.
"""

import json
import multiprocessing
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))


def tried(family: str) -> tuple[str, str]:
    """The family, and what the table says of it."""
    import torch
    from any_family import verdict  # type: ignore[import-not-found]
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.set_verbosity(logging.CRITICAL)
    return family, verdict(family)


def main() -> None:
    from any_family import names

    with multiprocessing.get_context("spawn").Pool(2) as pool:
        table = dict(pool.imap_unordered(tried, names(), chunksize=4))
    lines = json.dumps(dict(sorted(table.items())), indent=1)
    (ROOT / "h2o_chat" / "models" / "families.json").write_text(lines + "\n", encoding="utf-8")
    print(f"{sum(said == 'opens' for said in table.values())} of {len(table)} families open")


if __name__ == "__main__":
    main()
