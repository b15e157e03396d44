"""The text of a PDF file, read in a process of its own: a stranger's file may take any time and memory."""

import io
import subprocess
import sys

from h2o_chat.base.errors import UsageError
from h2o_chat.base.program_name import python

LIMIT_S = 60.0
LIMIT_BYTES = 2 << 30
"""Memory of the process, where the system can limit it."""
NOT_INSTALLED = 3
"""Exit code: pypdf is missing."""


def pdf_text(raw: bytes, name: str, most_bytes: int) -> str:
    """The text of a PDF file, page by page, up to a little over `most_bytes`.

    Raises:
        UsageError: it is damaged, encrypted, takes too long, or holds no text; or pypdf is not installed.
    """
    line = "import sys; from h2o_chat.chat.files.pdf_process import main; sys.exit(main())"
    command, environment = python(line, str(most_bytes))
    try:
        done = subprocess.run(
            command, env=environment, input=raw, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{name!r} takes longer than {LIMIT_S:.0f} s to read as PDF.") from error
    if done.returncode == NOT_INSTALLED:
        raise UsageError("PDF files are read by pypdf.", "pip install 'h2o-chat[pdf]'")
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it ended"]
        raise UsageError(f"{name!r} cannot be read as PDF: {lines[-1][:200]}")
    text = done.stdout.decode("utf-8", "replace")
    if not text.strip():
        raise UsageError(f"{name!r} holds no text: its pages are pictures.")
    return text


def main() -> int:
    """Runs in the process: a file on stdin, its text to stdout; returns the exit code."""
    try:
        import pypdf
    except ModuleNotFoundError:
        return NOT_INSTALLED
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    left = int(sys.argv[1])
    for page in pypdf.PdfReader(io.BytesIO(sys.stdin.buffer.read())).pages:
        text = (page.extract_text() + "\n\n").encode("utf-8", "replace")
        sys.stdout.buffer.write(text)
        left -= len(text)
        if left < 0:
            break  # it is refused for its size
    return 0
