"""`h2o-chat run --batch`: many conversations at once, their answers as lines of JSON.

The contract: a line for each id, complete or missing, written as soon as it is answered; the same input is
answered the same, in any order, after any kill; notes, progress and errors go to stderr; the exit code is one
of `ExitCode`.
"""

import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import ExitCode, H2OChatError, UsageError, name_of, written_out
from h2o_chat.base.progress import Seldom, progress_bar
from h2o_chat.chat.conversation.message import about_time
from h2o_chat.chat.files.batch_lines import SHOWN, BatchLine, read_jobs, request_of
from h2o_chat.chat.files.batch_results import ResultsFile, Stdout, line_of, made_with
from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.cli.commands import with_ray
from h2o_chat.cli.interruptible import interruptible
from h2o_chat.cli.run import complain, discard_stdout, ending, note_session
from h2o_chat.engine.request import Request
from h2o_chat.events.events import Turn
from h2o_chat.models.hub import stay_offline
from h2o_chat.remote.engine_here import batch_here

if TYPE_CHECKING:
    from h2o_chat.engine.batch import Batch

AHEAD = 2
"""Requests that wait in the batch: the template of the next one is rendered while others are answered."""


@dataclass(frozen=True)
class BatchTask:
    """A checked task, before anything is loaded."""

    settings: Settings
    """For all lines; `seed`, combined with the id, is for lines that name none."""
    sampling: Sampling
    """For lines that do not say it."""
    jobs: list[BatchLine]
    output: Path | None
    """None: stdout."""
    rows: int | None
    ray: str | None
    """The Ray cluster that answers; None: this process does."""


Answered = tuple[BatchLine, Turn | None, Exception | None]
"""A line, its answer, and why there is none."""


def lines_in(input: Path, output: Path | None, skip_bad: bool) -> list[BatchLine]:
    """The lines of the input; stderr names those that are left out.

    Raises:
        UsageError: the input cannot be read or is the output too, or a line is bad and may not be left out.
    """
    if output and output.exists() and input.exists() and output.samefile(input):
        raise UsageError(f"{output} is the input, too.", "Give -o another file.")
    jobs, bad = read_jobs(input, skip_bad)
    for error in bad[:SHOWN]:
        complain(f"Left out: {error.message}", "")
    if len(bad) > SHOWN:
        complain(f"Left out: {len(bad) - SHOWN:,} more lines.", "")
    return jobs


def run_batch(prepare: Callable[[], BatchTask]) -> ExitCode:
    """Answers every line of the input that the output has no answer to.

    Args:
        prepare: checks the arguments; its errors are shown like all others.
    """
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    try:
        return ending(lambda: _answer_all(prepare()))
    except BrokenPipeError:
        discard_stdout()
        return ExitCode.OK


def _answer_all(asked: BatchTask) -> ExitCode:
    jobs = asked.jobs
    made = made_with(asked.settings, asked.sampling)
    results = ResultsFile(asked.output, made) if asked.output else Stdout(sys.stdout)
    try:
        left = results.left(jobs)
        if before := len(jobs) - len(left):
            sys.stderr.write(f"h2o-chat: {before:,} of {len(jobs):,} are answered already\n")
        if not left:
            return ExitCode.OK
        if asked.ray is None:
            with progress_bar() as progress:
                stay_offline()
                batch = batch_here(asked.settings, asked.rows, len(left), progress)
            template = choose(batch.runner.loaded.tokenizer, asked.settings.template, asked.settings.think)
            session = batch.session(asked.settings.seed or 0)
            note_session(replace(session, template=template.name), asked.sampling)
            sys.stderr.write(f"h2o-chat: {len(left):,} to answer, {batch.runner.rows} at once\n")
            answered = answers(asked, batch, left)
        else:
            answered = with_ray("bulk").answers(asked, left)
        return _Answers(results, made, len(jobs), len(left)).write_all(answered)
    finally:
        results.close()


def answers(asked: BatchTask, batch: "Batch", left: Iterable[BatchLine]) -> Iterator[Answered | None]:
    """The answers to the lines as they end, and None after each step of the batch."""
    settings, tokenizer = asked.settings, batch.runner.loaded.tokenizer
    template = choose(tokenizer, settings.template, settings.think)
    under_way, coming, seed = dict[Request, BatchLine](), iter(left), settings.seed or 0
    job = next(coming, None)
    while job or batch.busy:
        while job and batch.waiting < AHEAD:
            try:
                request = request_of(job, template, tokenizer, asked.sampling, settings.system, seed)
                batch.add(request)
                under_way[request] = job
            except H2OChatError as error:  # the model's template does not take it
                yield job, None, error
            job = next(coming, None)
        for told in batch.step():
            if isinstance(told.event, Turn):
                yield under_way.pop(told.request), told.event, told.error
        yield None


class _Answers:
    """Writes the answers, counts them, and tells how far it is.

    Args:
        total: number of all lines.
        left: number of those that earlier runs did not answer.
    """

    def __init__(self, results: ResultsFile | Stdout, made: dict[str, Any], total: int, left: int) -> None:
        self.results, self.made = results, made
        self.total, self.left = total, left
        self.began = time.monotonic()
        self.done = 0
        self.failed = 0
        self.bugs = 0
        self.tokens = 0

    def write_all(self, answered: Iterator[Answered | None]) -> ExitCode:
        seldom, kept = Seldom(at_once=True), "all lines written are whole"
        with interruptible(lambda: kept) as interrupted, progress_bar() as progress:
            for one in answered:
                if one is not None:
                    self._write(*one)
                elif interrupted():
                    break
                elif seldom.due():
                    progress(f"answers: {self._so_far()}", 1 - self.left / self.total)
        self.results.require()
        self._sum_up(interrupted())
        if interrupted():
            return interrupted()
        if self.bugs:
            return ExitCode.BUG
        return ExitCode.FAILED if self.failed else ExitCode.OK

    def _write(self, job: BatchLine, turn: Turn | None, error: Exception | None) -> None:
        self.results.write(line_of(job.id, turn, error, made=self.made, asked=job.digest))
        self.done += 1
        self.left -= 1
        self.tokens += turn.new_tokens if turn else 0
        if error is None:
            return
        self.failed += 1
        if not isinstance(error, H2OChatError):
            self.bugs += 1
            sys.stderr.write(written_out("".join(traceback.format_exception(error))))
        message = getattr(error, "message", f"{type(error).__name__}: {error}")
        complain(f"line {job.line:,}, id {name_of(job.id)}: {message}", getattr(error, "hint", ""))

    def _so_far(self) -> str:
        """`120 of 1,000 · 345 tok/s · about 14 min`"""
        took = time.monotonic() - self.began
        words = f"{self.total - self.left:,} of {self.total:,} · {self.tokens / max(took, 1e-9):,.0f} tok/s"
        return (
            f"{words} · about {about_time(took / self.done * self.left)}"
            if self.done and self.left
            else words
        )

    def _sum_up(self, interrupted: ExitCode) -> None:
        took = time.monotonic() - self.began
        failed = f", {self.failed:,} of them failed" if self.failed else ""
        more = f"; {self.left:,} are left: run it again" if interrupted and self.left else ""
        sys.stderr.write(
            f"h2o-chat: {self.done:,} answered{failed}: {self.tokens:,} tokens in {about_time(took)},"
            f" {self.tokens / max(took, 1e-9):,.0f} tok/s{more}\n"
        )
