"""Reads PIQA (arXiv 1911.11641) as its authors publish it: goals with two solutions, and a file of labels."""

import json
from pathlib import Path
from typing import Any

from datasets import Dataset


def read(data: str | None = None, **_: Any) -> dict[str, Dataset]:
    """The validation half.

    Args:
        data: the folder with piqa_valid.jsonl and piqa_valid-labels.lst; what --data says.

    Raises:
        OSError, ValueError: no such files, or not as many labels as goals.
    """
    if data is None:
        raise ValueError(
            "piqa_local needs --data, the folder with piqa_valid.jsonl and piqa_valid-labels.lst"
        )
    lines = (Path(data) / "piqa_valid.jsonl").read_text(encoding="utf-8").splitlines()
    labels = (Path(data) / "piqa_valid-labels.lst").read_text(encoding="utf-8").split()
    rows = [{**json.loads(line), "label": int(label)} for line, label in zip(lines, labels, strict=True)]
    return {"validation": Dataset.from_list(rows)}
