"""/metrics, in Prometheus's text format."""

from collections.abc import Mapping
from typing import Any

import psutil

from h2o_chat.serve.service import Service

_PROCESS = psutil.Process()
_Metric = tuple[str, str, float | dict[str, int]]
"""(name, what it counts, the value or one for each label)."""


def metrics(service: Service) -> str:
    counts, prefixes, shared = service.counts, service.prefixes, service.shared
    busy = sum(request is not None for request in service.seated)
    gauges: tuple[_Metric, ...] = (
        ("requests_waiting", "Nothing of them was read yet.", len(service.waiting)),
        ("requests_reading", "Being read, or read and without a row.", service.reading),
        ("rows_busy", "Conversations that are answered just now.", busy),
        ("rows", "Conversations that can be answered at once.", len(service.seated)),
        ("row_bytes", "Of a row, as computed.", service.row_bytes),
        ("snapshot_bytes", "Of a snapshot, as computed.", service.snapshot_bytes),
        ("snapshots", "Conversations that can go on at once.", len(prefixes)),
        ("snapshots_limit", "So many at most.", prefixes.most),
        ("snapshots_bytes", "Of all of them, in memory.", prefixes.held_bytes),
        ("computed_bytes", "For rows, snapshots and prompts.", service.computed_bytes),
        ("resident_memory_bytes", "Of this process.", _PROCESS.memory_info().rss),
        ("shared_failing", "1 while the shared storage fails.", int(bool(shared and shared.fails.is_set()))),
        ("shared_waiting", "Answers not written there yet.", shared.pending if shared else 0),
    )
    counters: tuple[_Metric, ...] = (
        ("prompt_tokens_total", "Read.", counts.prompt_tokens),
        ("cached_tokens_total", "Read for an earlier request.", counts.cached_tokens),
        ("generated_tokens_total", "Answered.", counts.new_tokens),
        ("prompt_seconds_total", "Of reading.", round(counts.prompt_s, 3)),
        ("answer_seconds_total", "Of answering, row by row.", round(counts.answer_s, 3)),
        ("slow_streams_total", "Cut because nobody read them.", counts.slow),
        ("answers_total", "By how they ended.", _by("finish", counts.answers)),
        ("responses_total", "Of HTTP.", _by("status", counts.statuses)),
        ("shared_total", "Of the shared storage.", _by("what", shared.counts if shared else {})),
    )
    lines = list[str]()
    for kind, known in (("gauge", gauges), ("counter", counters)):
        for name, what, value in known:
            values = value if isinstance(value, dict) else {"": value}
            lines += [f"# HELP h2o_chat_{name} {what}", f"# TYPE h2o_chat_{name} {kind}"]
            lines += [f"h2o_chat_{name}{label} {one}" for label, one in values.items()]
    return "".join(f"{line}\n" for line in lines)


def _by(label: str, counted: Mapping[Any, int]) -> dict[str, int]:
    return {f'{{{label}="{one}"}}': count for one, count in sorted(counted.items())}
