"""/metrics, in Prometheus's text format."""

from collections.abc import Iterator

import psutil

from h2o_chat.serve.service import Service

_PROCESS = psutil.Process()


def metrics(service: Service) -> str:
    return "".join(f"{line}\n" for line in _lines(service))


def _lines(service: Service) -> Iterator[str]:
    counts, prefixes = service.counts, service.prefixes
    yield from _one("requests_waiting", "gauge", "Nothing of them was read yet.", len(service.waiting))
    yield from _one("requests_reading", "gauge", "Being read, or read and without a row.", service.reading)
    busy = sum(request is not None for request in service.seated)
    yield from _one("rows_busy", "gauge", "Conversations that are answered just now.", busy)
    yield from _one("rows", "gauge", "Conversations that can be answered at once.", len(service.seated))
    yield from _one("row_bytes", "gauge", "Of a row, as computed.", service.row_bytes)
    yield from _one("snapshot_bytes", "gauge", "Of a snapshot, as computed.", service.snapshot_bytes)
    yield from _one("snapshots", "gauge", "Conversations that can go on at once.", len(prefixes))
    yield from _one("snapshots_limit", "gauge", "So many at most.", prefixes.most)
    yield from _one("snapshots_bytes", "gauge", "Of all of them, in memory.", prefixes.held_bytes)
    yield from _one("computed_bytes", "gauge", "For rows, snapshots and prompts.", service.computed_bytes)
    yield from _one("resident_memory_bytes", "gauge", "Of this process.", _PROCESS.memory_info().rss)
    yield from _one("prompt_tokens_total", "counter", "Read.", counts.prompt_tokens)
    yield from _one("cached_tokens_total", "counter", "Read for an earlier request.", counts.cached_tokens)
    yield from _one("generated_tokens_total", "counter", "Answered.", counts.new_tokens)
    yield from _one("prompt_seconds_total", "counter", "Of reading.", round(counts.prompt_s, 3))
    yield from _one("answer_seconds_total", "counter", "Of answering, row by row.", round(counts.answer_s, 3))
    yield from _one("slow_streams_total", "counter", "Cut because nobody read them.", counts.slow)
    yield from _named("answers_total", "finish", "By how they ended.", counts.answers)
    yield from _named("responses_total", "status", "Of HTTP.", counts.statuses)


def _one(name: str, kind: str, what: str, value: float) -> Iterator[str]:
    yield from _head(name, kind, what)
    yield f"h2o_chat_{name} {value}"


def _named(name: str, label: str, what: str, counted: dict[str, int] | dict[int, int]) -> Iterator[str]:
    yield from _head(name, "counter", what)
    for value, count in sorted((str(value), count) for value, count in counted.items()):
        yield f'h2o_chat_{name}{{{label}="{value}"}} {count}'


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP h2o_chat_{name} {what}"
    yield f"# TYPE h2o_chat_{name} {kind}"
