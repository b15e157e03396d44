"""Runs real clients against `serve` on loopback, and prints what works as a table.

    tools/peers/clients.py -m MODEL [--folder FOLDER] [--openapi openapi.json] [--only NAME]

Each client is installed into an environment of its own in FOLDER (else a temporary one; minutes, 2 GB), never
beside this program. `--openapi`: also compares every reply with the OpenAPI document of OpenAI's API,
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
"""For one client: on two busy cores a model of 1.5 billion numbers reads the prompt of aider for minutes."""
OPENAI, CHECK = ("openai==3.57.0",), ("jsonschema==4.26.0",)
CLIENTS = {
    "openai_chat": ("openai-python: chat and completions, whole, streamed, logprobs", OPENAI),
    "openai_tools": ("openai-python: a forced tool, whole and streamed, and its result", OPENAI),
    "openai_parse": ("openai-python: `parse` with a schema", OPENAI),
    "openai_responses": ("openai-python: responses, streamed, continued, parsed, with a tool", OPENAI),
    "anthropic": ("anthropic: messages, streamed, with a tool", ("anthropic==2.14.0",)),
    "llm": ("llm: a schema, a tool", ("llm==0.36",)),
    "litellm": ("litellm: a forced tool, its result streamed", ("litellm==1.110.2",)),
    "langchain": (
        "langchain-openai: a schema, an agent with a tool",
        ("langchain-openai==1.7.4", "langchain==1.5.2"),
    ),
    "pydantic_ai": (
        "pydantic-ai: a typed answer, an agent with a tool",
        ("pydantic-ai-slim[openai]==2.68.0",),
    ),
    "instructor": ("instructor: `TOOLS` and `JSON_SCHEMA`", ("instructor==1.17.0",)),
    "aider": ("aider: one edit of a whole file", ("aider-chat==0.86.2",)),
}
"""Functions of client_calls.py: what they try, and what is installed for it, the client first."""


def made(folder: Path, packages: tuple[str, ...]) -> tuple[Path, str]:
    """The Python of an environment with these packages, and why it could not be made; empty: it is there.

    Each client has its own: they want different versions of the same libraries.
    """
    place = folder / packages[0].partition("=")[0].partition("[")[0]
    python = place / "bin" / "python"
    ready, wanted = place / "ready", "\n".join(packages)
    if ready.exists() and ready.read_text() == wanted:
        return python, ""
    venv.create(place, with_pip=True, clear=True)
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], stderr=-1, text=True)
    if done.returncode == 0:
        ready.write_text(wanted)
    return python, done.stderr.strip()[-200:] if done.returncode else ""


def output(command: list[str | Path]) -> str:
    """The last line that a program prints; where it fails, the last line of its error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return f"fails: no end within {LONGEST_S:,} s"
    lines = (done.stderr if done.returncode and not done.stdout else done.stdout).strip().splitlines()
    return f"{'fails: ' if done.returncode else ''}{lines[-1][:300] if lines else ''}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-b", "--budget", default="4096")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--openapi", type=Path)
    parser.add_argument("--only", choices=[*CLIENTS, "openapi"], action="append")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (asked.folder or Path(name)).resolve()
        flags = ["-m", asked.model, "-b", asked.budget, "--timeout", str(LONGEST_S)]
        flags += ["--rows", "2", "--any-model", "--no-store"]
        with Server(flags, Path(name) / "data") as server:
            return tried(server, folder, asked.openapi, asked.only or [*CLIENTS, "openapi"])


def tried(server: Server, folder: Path, openapi: Path | None, names: list[str]) -> int:
    """Prints the table; returns the exit code."""
    url, failed = f"http://127.0.0.1:{server.port}", False
    print("| client | version | | seconds |\n|---|---|---|---|")
    for name in names:
        if name == "openapi" and openapi is None:
            continue
        what, packages = CLIENTS.get(name, ("the OpenAPI document of OpenAI's API", CHECK))
        python, reason = made(folder, packages)
        begun = time.monotonic()
        if reason:
            found = f"not tried, it could not be installed: {' '.join(reason.split())}"
        elif name == "openapi":
            found = output([python, HERE / "openapi_check.py", str(openapi), url, "served"])
        else:
            found = output([python, HERE / "client_calls.py", name, url, "served"])
        failed |= found.startswith("fails")
        version = packages[0].partition("==")[2]
        print(f"| {what} | {version} | {found} | {time.monotonic() - begun:.0f} |", flush=True)
    said = server.said()
    if "Traceback" in said:
        print(said)
    return int(failed or "Traceback" in said)


if __name__ == "__main__":
    sys.exit(main())
