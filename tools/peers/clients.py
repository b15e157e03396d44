"""Runs real clients against `serve` on loopback, and prints what works as a table.

    tools/peers/clients.py -m MODEL [--folder FOLDER] [--openapi openapi.json] [--only NAME]

The clients are installed into environments of their own in FOLDER (else a temporary one; minutes, 1.5 GB),
never beside this program. `--openapi`: also compares every reply with the OpenAPI document of OpenAI's API,
from github.com/openai/openai-openapi. Ends with exit code 1 if a client failed.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "stress"))
from served import Server

HERE = Path(__file__).parent
LONGEST_S = 3600
"""For one client: a model of 1.5 billion numbers reads aider's prompt for minutes where two cores are busy."""
ENVIRONMENTS = {
    "clients": (
        *("openai==3.57.0", "anthropic==2.14.0", "llm", "litellm", "langchain-openai"),
        *("langchain", "pydantic-ai-slim[openai]", "instructor", "jsonschema==4.26.0"),
    ),
    "aider": ("aider-chat",),
}
"""aider wants certain versions of what the others use too."""
CLIENTS = {
    "openai_chat": ("openai-python: chat and completions, whole, streamed, logprobs", "openai"),
    "openai_tools": ("openai-python: a forced tool, whole and streamed, and its result", "openai"),
    "openai_parse": ("openai-python: `parse` with a schema", "openai"),
    "openai_responses": ("openai-python: responses, streamed, continued, parsed, with a tool", "openai"),
    "anthropic": ("anthropic: messages, streamed, with a tool", "anthropic"),
    "llm": ("llm: a schema, a tool", "llm"),
    "litellm": ("litellm: a forced tool, its result streamed", "litellm"),
    "langchain": ("langchain-openai: a schema, an agent with a tool", "langchain-openai"),
    "pydantic_ai": ("pydantic-ai: a typed answer, an agent with a tool", "pydantic-ai-slim"),
    "instructor": ("instructor: `TOOLS` and `JSON_SCHEMA`", "instructor"),
    "aider": ("aider: one edit of a whole file", "aider-chat"),
}
"""Functions of client_calls.py: what they try, and the package whose version is told."""


def made(folder: Path, name: str) -> Path:
    """The Python of an environment, made where it is not there; what cannot be installed is left out."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        venv.create(folder / name, with_pip=True)
        for package in ENVIRONMENTS[name]:
            subprocess.run([python, "-m", "pip", "install", "--quiet", package])
    return python


def output(command: list[str | Path]) -> str:
    """The last line that a program prints; where it fails, the last line of its error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return f"fails: no end within {LONGEST_S:,} s"
    lines = (done.stderr if done.returncode and not done.stdout else done.stdout).strip().splitlines()
    return f"{'fails: ' if done.returncode else ''}{lines[-1][:300] if lines else ''}"


def version(python: Path, package: str) -> str:
    """The version that is installed; empty: none is."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = output([python, "-c", code])
    return "" if found.startswith("fails") else found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-b", "--budget", default="4096")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--openapi", type=Path)
    parser.add_argument("--only", choices=[*CLIENTS, "openapi"], action="append")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (asked.folder or Path(name)).resolve()
        server = Server(
            ["-m", asked.model, "-b", asked.budget, "--rows", "2", "--any-model", "--no-store"]
            + ["--timeout", str(LONGEST_S)],
            Path(name) / "data",
        )
        try:
            return tried(server, folder, asked.openapi, asked.only or [*CLIENTS, "openapi"])
        finally:
            server.process.kill()
            server.process.wait()


def tried(server: Server, folder: Path, openapi: Path | None, names: list[str]) -> int:
    """Prints the table; returns the exit code."""
    url, failed = f"http://127.0.0.1:{server.port}", False
    print("| client | version | | seconds |\n|---|---|---|---|")
    for name in names:
        begun = time.monotonic()
        python = made(folder, "aider" if name == "aider" else "clients")
        if name == "openapi":
            if openapi is None:
                continue
            what, of = "OpenAPI document of OpenAI's API", "2.3.0"
            found = output([python, HERE / "openapi_check.py", openapi, url, "served"])
        else:
            what, package = CLIENTS[name]
            of = version(python, package)
            found = "not tried: it could not be installed"
            if of:
                found = output([python, HERE / "client_calls.py", name, url, "served"])
        failed |= found.startswith("fails")
        print(f"| {what} | {of} | {found} | {time.monotonic() - begun:.0f} |", flush=True)
    said = server.said()
    if "Traceback" in said:
        print(said)
    return int(failed or "Traceback" in said)


if __name__ == "__main__":
    sys.exit(main())
