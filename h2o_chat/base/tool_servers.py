"""`[mcp.NAME]` in the configuration: programs whose tools a chat may call."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from h2o_chat.base.config import config_file, read_tables
from h2o_chat.base.errors import UsageError

_HINT = 'Write [mcp.NAME] with command = ["PROGRAM", "ARGUMENT"]; also env = {NAME = "TEXT"}, timeout_s = 60.'


@dataclass(frozen=True)
class ToolServer:
    """A program that speaks MCP on its standard input and output."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    """Variables beside HOME, PATH and the like: it gets no others."""
    timeout_s: float
    """Longest time of one call."""


def tool_servers() -> list[ToolServer]:
    """The servers of the user's configuration.

    Raises:
        UsageError: the file, or a server in it, cannot be used.
    """
    path = config_file()
    return servers_in(read_tables(path), str(path))


def servers_in(tables: Mapping[str, Any], path: str) -> list[ToolServer]:
    """The servers in the tables of a configuration file.

    Raises:
        UsageError: one cannot be used; names `path` and the server.
    """
    named = tables.get("mcp", {})
    if not isinstance(named, dict):
        raise UsageError(f"{path}: mcp is no table of servers.", _HINT)
    return [_server(name, table, f"{path}: [mcp.{name}]") for name, table in named.items()]


def _server(name: str, table: Any, where: str) -> ToolServer:
    match table:
        case {"command": [str(), *_] as command, **rest} if rest.keys() <= {"env", "timeout_s"}:
            env, timeout_s = rest.get("env", {}), rest.get("timeout_s", 60.0)
        case _:
            raise UsageError(f"{where} is {str(table)[:200]}.", _HINT)
    if not all(isinstance(one, str) for one in command):
        raise UsageError(f"{where} command is no list of texts.", _HINT)
    if not isinstance(env, dict) or not all(isinstance(one, str) for one in env.values()):
        raise UsageError(f"{where} env is no table of texts.", _HINT)
    if not isinstance(timeout_s, int | float) or not 0 < timeout_s < math.inf:
        raise UsageError(f"{where} timeout_s is {timeout_s!r}, and no number of seconds above 0.", _HINT)
    return ToolServer(name, tuple(command), env, timeout_s)
