"""The process in which chat templates are rendered: each is a stranger's program.

Every line on stdin is a question, every line on stdout its answer, both JSON. A template that computes for
too long ends the process, wherever in Python or below it that is (a loop, a power of a power); one that wants
too much memory does not get it. Only jinja2 and the standard library are imported: that takes 0.1 s.
"""

import faulthandler
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

LONGEST_S = 1.5
"""Computing time, so that a busy machine does not count; real templates take a few milliseconds."""
OVERRUN = -signal.SIGPROF if hasattr(signal, "SIGPROF") else 1
"""Exit code after too much computing, as the parent sees it."""
MOST_BYTES = 1 << 30
MOST_CHARACTERS = 1 << 20
"""Characters that a template may add to the messages; real ones add some thousands."""


class _Generation(jinja2.ext.Extension):
    """Marks for training what an assistant says (`{% generation %}`); here only their content counts."""

    tags = {"generation"}  # noqa: RUF012  (as jinja2 declares it)

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_inside"), [], [], body).set_lineno(line)

    def _inside(self, caller: Any) -> str:
        return str(caller())


class _Namespace(jinja2.utils.Namespace):
    """Accepts no name that begins with an underscore: those lead into Python."""

    def __init__(*arguments: Any, **named: Any) -> None:
        self, *given = arguments  # so that a template may set `self`
        values = dict(*given, **named)
        for name in values:
            _checked(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(_checked(name), value)


def _checked(name: str) -> str:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"{name!r} cannot be set: it begins with an underscore.")
    return name


class _Dict:
    """`dict`, without the attributes of the type."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return dict(*arguments, **named)

    def fromkeys(self, *arguments: Any) -> Any:
        return dict.fromkeys(*arguments)


def _raise(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own would write HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def environment() -> ImmutableSandboxedEnvironment:
    """The environment of a chat template, equal to that of transformers, which takes a second to import."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    made.globals["dict"] = _Dict()
    made.globals["namespace"] = _Namespace
    return made


@lru_cache
def _compiled(template: str) -> jinja2.Template:
    return environment().from_string(template)


def answer(question: dict[str, Any]) -> dict[str, str]:
    """`text` that a template makes of its values; else the `error` it raised, or the `limit` it passed."""
    said = sum(len(message["content"]) for message in question["values"]["messages"])
    try:
        text = _compiled(question["template"]).render(**question["values"])
    except MemoryError:
        return {"limit": f"{MOST_BYTES >> 20} MiB of memory"}
    except Exception as error:  # it may divide by zero
        return {"error": str(error)[:10_000] or type(error).__name__}
    if len(text) > 2 * said + MOST_CHARACTERS:
        return {"limit": f"{MOST_CHARACTERS:,} characters beside what is said"}
    return {"text": text}


@contextmanager
def _clock() -> Iterator[None]:
    """Ends this process with the exit code `OVERRUN` after `LONGEST_S` of computing; on Windows, of time."""
    if sys.platform == "win32":
        with Path(os.devnull).open("w") as nowhere:
            faulthandler.dump_traceback_later(LONGEST_S, exit=True, file=nowhere)
            yield
            faulthandler.cancel_dump_traceback_later()
        return
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # it ends the process
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    with suppress(ImportError, ValueError, OSError):  # a system that knows no such limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin.buffer:
        with _clock():
            given = json.dumps(answer(json.loads(line)))
        sys.stdout.write(given + "\n")
        sys.stdout.flush()
