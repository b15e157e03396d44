"""`run` and the plain chat call tools of a real MCP server; the bundled model's answers are forced calls."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from here import h2o_here
from opened_models import loaded
from program import POCKET, Ended, h2o

from h2o_chat.base.config import Sampling, Settings, ToolServer
from h2o_chat.base.errors import ExitCode
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.tool_rounds import send_and_call, take_tools
from h2o_chat.chat.tools.mcp_servers import McpServers, allow
from h2o_chat.cli.run import PlainText
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Note, Said, Turn

SERVER = Path(__file__).parents[1] / "mcp_server.py"
CALL = {"name": "escapes", "arguments": {}}
PLAIN = """
import sys
from h2o_chat.base.config import Sampling, Settings, ToolServer
from h2o_chat.base.config import tool_servers
from h2o_chat.chat.conversation.opening import opener, with_tools
from h2o_chat.chat.tools.mcp_servers import McpServers
from h2o_chat.cli import plain
from h2o_chat.engine.lark import json_rule

servers = McpServers(tool_servers())
opened = with_tools(opener(Settings(model=sys.argv[1], budget=1024, threads=1, seed=1), None), servers)

def forced(progress):
    chat = opened(progress)
    chat.engine.grammar = f"start: {json_rule({'const': {'name': 'escapes', 'arguments': {}}})}"
    return chat

sys.exit(plain.run(forced, lambda name: forced, "pocket", Sampling(max_tokens=60), servers))
"""


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which a server of tools is configured."""
    folder = tmp_path_factory.mktemp("configuration")
    (folder / "h2o-chat").mkdir()
    command = json.dumps([sys.executable, str(SERVER)])
    (folder / "h2o-chat" / "config.toml").write_text(f"[mcp.tests]\ncommand = {command}\ntimeout_s = 60\n")
    (folder / "call.json").write_text(json.dumps({"const": CALL}))
    return {**os.environ, "XDG_CONFIG_HOME": str(folder)}


def asked(environment: dict[str, str], *flags: object) -> Ended:
    schema = Path(environment["XDG_CONFIG_HOME"]) / "call.json"
    flags = ("--json", "--events", 0, "-m", POCKET, "-b", 1024, "--temperature", 0, *flags)
    return h2o("run", "Hello!", "--schema", schema, *flags, env=environment)


@pytest.mark.parametrize("flag", [["--allow-tools"], ["--allow-tool", "escapes"]])
def test_run_makes_allowed_calls(configured: dict[str, str], flag: list[str]) -> None:
    done = asked(configured, *flag)
    results = [one.text for one in done.of(Said) if one.role == "tool"]
    assert len(results) == 8
    assert all("red" in text for text in results)
    assert "\x1b" not in done.out + done.err, "JSON escapes it"


@pytest.mark.parametrize("flag", [[], ["--allow-tool", "echo"]])
def test_run_makes_no_other_calls_and_says_so(configured: dict[str, str], flag: list[str]) -> None:
    done = asked(configured, *flag)
    assert [one.code for one in done.of(Note)].count("tool-refused") == 8
    assert "--allow-tool escapes" in done.err
    assert not any("red" in one.text for one in done.of(Said) if one.role == "tool")


def test_calls_are_no_answers_on_stdout(configured: dict[str, str]) -> None:
    """The first answer is a call alone, the second speaks first, the third is free."""
    call = json.dumps({"name": "echo", "arguments": {"text": "snow"}})
    settings = Settings(model=str(POCKET), budget=1024, threads=1, seed=1)
    chat = Chat(Engine(loaded(settings), settings), settings)
    command = (sys.executable, str(SERVER))
    servers = McpServers([ToolServer("tests", command, {}, 60.0)])
    servers.ask = allow
    take_tools(chat, servers)
    grammars = [f"start: {json.dumps(call)}", f'start: "I look. " {json.dumps(f"<tool_call>{call}")}', ""]
    out, answers = io.StringIO(), list[str]()
    plain = PlainText(out)
    assert chat.tools is not None
    plain.tools, plain.form = chat.tools, chat.tools.form
    chat.engine.grammar = grammars.pop(0)
    for event in send_and_call(chat, "Hello!", Sampling(temperature=0, max_tokens=60)):
        plain.write(event)
        if isinstance(event, Turn):
            answers.append(event.text)
            chat.engine.grammar = grammars.pop(0) if grammars else ""
    servers.close()
    assert len(answers) == 3
    assert call in answers[0]
    assert call in answers[1]
    assert out.getvalue() == f"I look. \n---\n{answers[2]}\n"


def test_the_plain_chat_asks_by_lines(configured: dict[str, str]) -> None:
    typed = "Hello!\nn\ny\na\n/quit\n"
    command = [sys.executable, "-c", PLAIN, str(POCKET)]
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, env=configured, timeout=200, check=False
    )
    assert done.returncode == ExitCode.OK, done.stderr
    assert done.stdout.count("May it call escapes?") == 3, "the third answer allows the others"
    assert done.stdout.count(" red ") == 7
    assert "\x1b" not in done.stdout
    assert "#4 tool: escapes (untrusted):" in done.stdout


def test_a_server_needs_a_command(file: Path) -> None:
    for wrong in ("command = []", 'command = "x"', 'command = ["x"]\ntimeout_s = 0', 'comand = ["x"]'):
        file.write_text(f"[mcp.mine]\n{wrong}\n")
        assert "[mcp.mine]" in h2o_here("run", "Hello!", "-m", POCKET, ends=ExitCode.USAGE).err
