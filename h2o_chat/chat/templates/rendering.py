"""Renders chat templates in a process of their own, with limits of time and size.

A template comes with a model, and is a program: two nested loops would occupy this process for hours, without
a way to stop it.
"""

import json
import subprocess
import threading
from typing import Any

from h2o_chat.base.errors import H2OChatError, ModelError
from h2o_chat.base.program_name import python
from h2o_chat.chat.templates.template_process import LONGEST_S, OVERRUN

_PROGRAM = "from h2o_chat.chat.templates.template_process import main; main()"


class TemplateFailed(Exception):
    """The template itself has raised an error; says which."""


class Renderer:
    """The process, for all templates; it begins with the first question and ends with this process."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, template: str, values: dict[str, Any]) -> str:
        """The text that a template makes of JSON values, as transformers would render it.

        Raises:
            TemplateFailed: it has raised an error.
            ModelError: it has passed a limit.
        """
        question = json.dumps({"template": template, "values": values}, default=str) + "\n"
        with self._asking:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(question.encode())
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = b""
            except BaseException:  # a second ctrl+c: what still comes is of no question to come
                process.kill()
                raise
            code = None if line.endswith(b"\n") else process.wait()
        if code == OVERRUN:
            raise _too_much(f"{LONGEST_S} s of computing")
        if code is not None:
            raise ModelError(f"The process of the model's chat template has ended with {code}.", _HINT)
        told: dict[str, str] = json.loads(line)
        if "limit" in told:
            raise _too_much(told["limit"])
        if "error" in told:
            raise TemplateFailed(told["error"])
        return told["text"]

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            command, environment = python(_PROGRAM)
            try:
                self._process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is ours to understand
                )
            except OSError as error:
                raise H2OChatError(f"A process for the chat template cannot be started: {error}.") from error
        return self._process


_HINT = "Use --template plain, or another model."


def _too_much(limit: str) -> ModelError:
    return ModelError(f"The model's chat template was stopped: it took more than {limit}.", _HINT)


render = Renderer().render
