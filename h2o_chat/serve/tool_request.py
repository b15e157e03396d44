"""Tools, schemas, penalties and log-probabilities in the body of a request.

What is wrong raises ApiError, which names the key.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from h2o_chat.chat.templates.tool_form import Call, ToolForm
from h2o_chat.engine.lark import json_rule, text_rule
from h2o_chat.serve.api_errors import wrong
from h2o_chat.serve.request_bodies import list_of, seen, whole_number
from h2o_chat.store import clean

TOOLS = 128  # most of a request
PROPERTIES = 500
"""Most keys of an object in a schema: the time to compile them grows with their square (30 ms)."""
BIASES = 1024  # most tokens that have one
ANY_OBJECT: dict[str, Any] = {"type": "object"}
Body = Mapping[str, Any]


@dataclass(frozen=True)
class Tools:
    """The tools of a request, and what its answer has to be."""

    tools: tuple[Any, ...] = ()
    grammar: str = ""
    """In llguidance's form of Lark; empty: the answer is free."""


def tools_of(body: Body, form: ToolForm, marks: Sequence[str], added: Mapping[str, int]) -> Tools:
    """`tools`, `tool_choice`, `response_format`, `json_schema` and `grammar` of a body.

    No tool may contain one of the `marks`: the template writes tools as they are. For `added`, see `Served`.
    """
    choice = body.get("tool_choice") or "auto"
    given = list_of(body.get("tools") or [], "tools")
    tools = tuple(_tool(one, f"tools[{at}]") for at, one in enumerate(given))
    if len(tools) > TOOLS:
        raise wrong("tools", f"There are {len(tools):,} tools: {TOOLS} is the most.")
    _check_size(tools, "tools")
    names = [one["function"]["name"] for one in tools]
    texts = [one for one in _nodes(tools) if isinstance(one, str)]
    if found := next((mark for mark in marks if any(mark in text for text in texts)), None):
        raise wrong("tools", f"A tool contains {found!r}, with which the model's template marks turns.")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = choice.get("allowed_tools") or choice  # as /v1/responses has it
        if not isinstance(allowed, dict):
            raise wrong("tool_choice", "tool_choice has allowed_tools that are no object.")
        wanted = [
            _tool(one, "tool_choice")["function"]["name"]
            for one in list_of(allowed.get("tools") or [], "tools")
        ]
        if unknown := [one for one in wanted if one not in names]:
            raise wrong("tool_choice", f"tool_choice allows {unknown[0]!a}, and tools have no such name.")
        tools = tuple(one for one in tools if one["function"]["name"] in wanted)
        choice = allowed.get("mode") or "auto"
    forced: Sequence[Any] = ()
    if isinstance(choice, dict):
        function = choice.get("function", choice)
        if not isinstance(function, dict):
            what = 'Write {"type": "function", "function": {"name": "..."}}.'
            raise wrong("tool_choice", f"tool_choice.function is {seen(function)}. {what}")
        named = function.get("name")
        forced = [one for one in tools if one["function"]["name"] == named]
        if not forced:
            known = ", ".join(one["function"]["name"] for one in tools) or "none"
            raise wrong("tool_choice", f"tool_choice names {named!a}: tools are {known}.")
    elif choice not in ("auto", "none", "required"):
        raise wrong("tool_choice", f"tool_choice is {choice!a}. It is none, auto, required, or names a tool.")
    elif choice == "required":
        forced = tools
        if not tools:
            raise wrong("tool_choice", "tool_choice is required, and there are no tools.")
    elif choice == "none":
        tools = ()
    if forced:
        return Tools(tools, _call_rule(form, forced, added))
    schema = _schema(body)
    if isinstance(schema, str):
        return Tools(tools, schema)
    if schema is None:
        return Tools(tools)
    rules = _call_rule(form, tools, added).replace("start:", "call:", 1) if tools else ""
    return Tools(tools, f"start: {'call | ' if tools else ''}wanted\nwanted: {json_rule(schema)}\n{rules}")


def _tool(one: Any, where: str) -> Any:
    match one:
        case {"type": "function", "function": {"name": str(name), **rest}} if name:
            pass
        case {"type": "function", "name": str(name), **rest} if name:  # as /v1/responses has it
            pass
        case _:
            raise wrong(where, f"{where} is no function with a name.")
    described, parameters = rest.get("description"), rest.get("parameters")
    if not isinstance(described or "", str) or not isinstance(parameters, dict | None):
        raise wrong(where, f"{where} has a description that is no text, or parameters that are no schema.")
    parameters = ANY_OBJECT | (parameters or {})
    if parameters["type"] != "object":
        raise wrong(where, f"{where} has parameters of a type that is not object.")
    made = {"name": name, "description": described or "", "parameters": parameters}
    return {"type": "function", "function": made}


def _schema(body: Body) -> dict[str, Any] | str | None:
    """The schema of the answer, or a grammar in Lark."""
    if grammar := body.get("grammar"):
        if not isinstance(grammar, str):
            raise wrong("grammar", "grammar is no text.")
        return _from_gbnf(clean(grammar))
    wanted = body.get("response_format") or {"type": "text"}
    match wanted:
        case {"type": "text"}:
            schema = body.get("json_schema") or None
        case {"type": "json_object"}:
            schema = wanted.get("schema") or ANY_OBJECT
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            pass
        case {"type": "json_schema", "schema": dict(schema)}:  # as /v1/responses has it
            pass
        case {"type": "json_schema"}:
            raise wrong("response_format", "response_format is json_schema, and has no schema.")
        case _:
            raise wrong("response_format", "response_format is not text, json_object or json_schema.")
    if schema is not None and not isinstance(schema, dict):
        raise wrong("json_schema", "json_schema is no object.")
    _check_size(schema, "response_format")
    return schema


def _check_size(value: Any, where: str) -> None:
    for one in _nodes(value):
        if isinstance(one, dict) and len(one) > PROPERTIES:
            raise wrong(where, f"{where} has an object with {len(one):,} keys: {PROPERTIES} is the most.")
        if isinstance(one, str) and clean(one) != one:
            raise wrong(where, f"{where} has a text that is no Unicode.")
        if isinstance(one, int) and abs(one) > 2**53:
            raise wrong(where, f"{where} has a whole number beyond 2^53, which schemas would round.")


def _from_gbnf(grammar: str) -> str:
    try:
        from llguidance.gbnf_to_lark import any_to_lark
    except ImportError:
        return grammar  # what is missing is said where it is compiled
    try:
        return str(any_to_lark(grammar))
    except Exception as error:
        raise wrong("grammar", f"The grammar cannot be read: {error}") from error


def _call_rule(form: ToolForm, tools: Sequence[Any], added: Mapping[str, int]) -> str:
    """Lark for one call of one of these tools, as the model writes it."""
    names = " | ".join(f"tool{at}" for at in range(len(tools)))
    around = [text_rule(mark, added) for mark in (form.begins, form.ends)]
    rules = [f"start: {around[0]} ({names}) {around[1]}"]
    for at, one in enumerate(tools):
        function = one["function"]
        head = f'{{"name": {json.dumps(function["name"])}, "{form.arguments}": '
        rules.append(f'tool{at}: {text_rule(head)} tool{at}_arguments "}}"')
        rules.append(f"tool{at}_arguments: {json_rule(function['parameters'])}")
    return "\n".join(rules) + "\n"


def calls_of(message: Body, where: str) -> tuple[Call, ...]:
    made = []
    for at, one in enumerate(list_of(message.get("tool_calls") or [], f"{where}.tool_calls")):
        here = f"{where}.tool_calls[{at}]"
        match one:
            case {"function": {"name": str(name), "arguments": arguments}}:
                pass
            case _:
                raise wrong(here, f"{here} is no function with a name and arguments.")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except (ValueError, RecursionError) as error:
                raise wrong(here, f"{here} has arguments that are no JSON.") from error
        if not isinstance(arguments, dict):
            raise wrong(here, f"{here} has arguments that are no object.")
        made.append(Call(name, arguments))
    return tuple(made)


def penalties_of(body: Body) -> dict[str, Any]:
    """Penalties, `logit_bias`, `logprobs` and `top_logprobs`, as `Wishes` has them."""
    bias = body.get("logit_bias") or {}
    if not isinstance(bias, dict) or len(bias) > BIASES:
        raise wrong("logit_bias", f"logit_bias is no object of at most {BIASES:,} tokens.")
    if any(not key.isdecimal() or len(key) > 9 for key in bias):
        raise wrong("logit_bias", "logit_bias has a key that is no token's number.")
    wished: dict[str, Any] = {
        "bias": {int(key): _number(value, "logit_bias", 100) for key, value in bias.items()},
        "presence": _number(body.get("presence_penalty") or 0, "presence_penalty", 2),
        "frequency": _number(body.get("frequency_penalty") or 0, "frequency_penalty", 2),
    }
    top = whole_number(body, "top_logprobs", 0, 0, 20)
    if body.get("logprobs"):
        wished["chances"] = top
    return wished


def _number(value: Any, key: str, most: float) -> float:
    if type(value) not in (int, float) or not -most <= value <= most:
        raise wrong(key, f"{key} must be a number from {-most:g} to {most:g}.")
    return float(value)


def _nodes(value: Any) -> Iterator[Any]:
    """All values inside a JSON value, names of keys too."""
    left = [value]
    while left:
        yield (one := left.pop())
        if isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list | tuple):
            left += one
