"""The calls of one client to a server; `clients.py` runs it in the clients' own environment.

    python client_calls.py NAME URL MODEL       # prints how it went, in one line

A function is a client. It raises what the client raises, and AssertionError where something is missing.
"""

# mypy: disable-error-code="import-not-found,misc"
# The clients are installed elsewhere.

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic

ASKED = "What is the weather in Paris?"
SECRET = "violet"
"""Word that only the tool knows: an answer that has it has read the tool's result."""
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOLD = "Tells the weather of a city"
FUNCTION = {"name": "get_weather", "description": TOLD, "parameters": SCHEMA}
MOST_TOKENS = 200
AGAIN = "works; the model calls the tool again and again"


class Person(pydantic.BaseModel):
    """The fields that are read out of a sentence."""

    name: str
    age: int
    likes: list[str]


SENTENCE = "Ada is 36 years old. She likes mathematics and tea."


def get_weather(city: str) -> str:
    """Tells the weather of a city."""
    return f"The sky over {city} is {SECRET}, 31 degrees."


def used(answer: str) -> str:
    """How a tool was used: the server is not to blame where a model does not tell its result."""
    return "works" if SECRET in answer else f"works; the model did not tell the result: {answer[:60]!r}"


def checked(person: Any) -> str:
    assert isinstance(person, Person), person
    return "works" if (person.name, person.age) == ("Ada", 36) else f"works; the model read {person}"


def openai_client(url: str) -> Any:
    from openai import OpenAI

    return OpenAI(base_url=f"{url}/v1", api_key="none")


def openai_chat(url: str, model: str) -> str:
    client = openai_client(url)
    said: list[Any] = [{"role": "user", "content": "Say hello."}]
    about: dict[str, Any] = {"model": client.models.list().data[0].id, "max_tokens": 20, "temperature": 0}
    whole = client.chat.completions.create(messages=said, logprobs=True, top_logprobs=2, **about).choices[0]
    chunks = client.chat.completions.create(
        messages=said, stream=True, stream_options={"include_usage": True}, **about
    )
    pieces, usage = [], None
    for chunk in chunks:
        pieces += [one.delta.content or "" for one in chunk.choices]
        usage = chunk.usage or usage
    assert "".join(pieces) == whole.message.content, (pieces, whole)
    assert usage is not None
    assert len(whole.logprobs.content) == usage.completion_tokens or whole.finish_reason == "stop"
    text = client.completions.create(prompt="def add(a, b):", **about).choices[0].text
    assert text
    return "works"


def openai_tools(url: str, model: str) -> str:
    client = openai_client(url)
    tools: list[Any] = [{"type": "function", "function": FUNCTION}]
    said: list[Any] = [{"role": "user", "content": ASKED}]
    about: dict[str, Any] = {"model": model, "tools": tools, "max_tokens": MOST_TOKENS, "temperature": 0}
    found = client.chat.completions.create(messages=said, tool_choice="required", **about).choices[0]
    assert found.finish_reason == "tool_calls", found
    (call,) = found.message.tool_calls
    with client.chat.completions.stream(messages=said, tool_choice="required", **about) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert streamed.function.arguments == call.function.arguments, (streamed, call)
    result = get_weather(**json.loads(call.function.arguments))
    said += [found.message, {"role": "tool", "tool_call_id": call.id, "content": result}]
    return used(client.chat.completions.create(messages=said, **about).choices[0].message.content or "")


def openai_parse(url: str, model: str) -> str:
    client = openai_client(url)
    said: list[Any] = [{"role": "user", "content": SENTENCE}]
    found = client.chat.completions.parse(
        model=model, messages=said, response_format=Person, max_tokens=MOST_TOKENS, temperature=0
    )
    return checked(found.choices[0].message.parsed)


def openai_responses(url: str, model: str) -> str:
    from openai import NotFoundError

    client = openai_client(url)
    about: dict[str, Any] = {"model": model, "max_output_tokens": MOST_TOKENS, "temperature": 0}
    first = client.responses.create(input="My name is Ada.", **about)
    again = client.responses.create(input="What is my name?", previous_response_id=first.id, **about)
    assert again.usage.input_tokens_details.cached_tokens > 0
    try:
        client.responses.create(input="Hello", previous_response_id="resp_none", **about)
        raise AssertionError("an unknown conversation was answered")
    except NotFoundError:
        pass
    with client.responses.stream(input="Say hello.", **about) as stream:
        pieces = [one.delta for one in stream if one.type == "response.output_text.delta"]
        assert "".join(pieces) == stream.get_final_response().output_text
    assert isinstance(
        client.responses.parse(input=SENTENCE, text_format=Person, **about).output_parsed, Person
    )
    tools: list[Any] = [{"type": "function", "strict": False, **FUNCTION}]
    (call,) = client.responses.create(input=ASKED, tools=tools, tool_choice="required", **about).output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": get_weather("Paris")}
    answer = client.responses.create(
        input=[{"role": "user", "content": ASKED}, call.to_dict(), result], tools=tools, **about
    )
    return used(answer.output_text)


def anthropic(url: str, model: str) -> str:
    from anthropic import Anthropic

    client = Anthropic(base_url=url, api_key="none")
    tools: list[Any] = [{"name": "get_weather", "description": TOLD, "input_schema": SCHEMA}]
    said: list[Any] = [{"role": "user", "content": ASKED}]
    # Its newest functions take no temperature.
    about: dict[str, Any] = {"model": model, "max_tokens": MOST_TOKENS, "extra_body": {"temperature": 0}}
    with client.messages.stream(messages=[{"role": "user", "content": "Say hello."}], **about) as stream:
        assert "".join(stream.text_stream) == stream.get_final_message().content[0].text
    forced = {"tools": tools, "tool_choice": {"type": "any"}}
    found = client.messages.create(messages=said, system="Be brief.", **forced, **about)
    assert found.stop_reason == "tool_use", found
    with client.messages.stream(messages=said, system="Be brief.", **forced, **about) as stream:
        streamed = stream.get_final_message().content
    assert streamed[-1].input == found.content[-1].input, (streamed, found)
    result = {"type": "tool_result", "tool_use_id": found.content[-1].id, "content": get_weather("Paris")}
    said += [{"role": "assistant", "content": found.content}, {"role": "user", "content": [result]}]
    answer = client.messages.create(messages=said, system="Be brief.", tools=tools, **about)
    return used("".join(one.text for one in answer.content if one.type == "text"))


def llm(url: str, model: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        served = {
            "model_id": "served",
            "model_name": model,
            "api_base": f"{url}/v1",
            "api_key_name": "served",
        }
        flags = {"supports_tools": True, "supports_schema": True}
        Path(name, "extra-openai-models.yaml").write_text(json.dumps([served | flags]))
        Path(name, "tools.py").write_text(
            f'def get_weather(city: str) -> str:\n    "{TOLD}"\n'
            f'    return f"The sky over {{city}} is {SECRET}, 31 degrees."\n'
        )
        program = [str(Path(sys.executable).with_name("llm")), "-m", "served", "--key", "none", "-n"]
        about = ["-o", "temperature", "0", "-o", "max_tokens", str(MOST_TOKENS)]
        person = said_by([*program, *about, "--schema", "name, age int", SENTENCE], name)
        assert set(json.loads(person)) >= {"name", "age"}, person
        try:
            told = said_by([*program, *about, "--td", "--functions", f"{name}/tools.py", ASKED], name)
        except AssertionError as error:
            if "Chain limit" in str(error):
                return AGAIN
            raise
    return used(told) if "Tool call:" in told else f"works; the model called no tool: {told[:60]!r}"


def said_by(command: list[str], folder: str) -> str:
    """The stdout and stderr of a program of the environment."""
    env = os.environ | {"LLM_USER_PATH": folder, "HOME": folder, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-400:]
    return done.stdout


def litellm(url: str, model: str) -> str:
    import litellm

    about: dict[str, Any] = {"model": f"openai/{model}", "api_base": f"{url}/v1", "api_key": "none"}
    about |= {"max_tokens": MOST_TOKENS, "temperature": 0}
    tools = [{"type": "function", "function": FUNCTION}]
    said: list[Any] = [{"role": "user", "content": ASKED}]
    found = litellm.completion(messages=said, tools=tools, tool_choice="required", **about)
    message = found.choices[0].message
    (call,) = message.tool_calls
    result = get_weather(**json.loads(call.function.arguments))
    said += [message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": result}]
    pieces: Iterator[Any] = litellm.completion(messages=said, tools=tools, stream=True, **about)
    return used("".join(one.choices[0].delta.content or "" for one in pieces))


def langchain(url: str, model: str) -> str:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI
    from langgraph.errors import GraphRecursionError

    chat = ChatOpenAI(
        model=model, base_url=f"{url}/v1", api_key="none", temperature=0, max_tokens=MOST_TOKENS
    )
    assert isinstance(chat.with_structured_output(Person).invoke(SENTENCE), Person)
    agent = create_agent(chat, [get_weather])
    try:
        found = agent.invoke({"messages": [("user", ASKED)]}, {"recursion_limit": 8})["messages"]
    except GraphRecursionError:
        return AGAIN
    called = any(one.type == "tool" for one in found)
    return (
        used(found[-1].content) if called else f"works; the model called no tool: {found[-1].content[:60]!r}"
    )


def pydantic_ai(url: str, model: str) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.exceptions import UsageLimitExceeded
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits

    chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    settings: Any = {"temperature": 0, "max_tokens": MOST_TOKENS}
    person = Agent(chat, output_type=Person, model_settings=settings).run_sync(SENTENCE).output
    agent = Agent(chat, tools=[get_weather], model_settings=settings)
    try:
        found = agent.run_sync(ASKED, usage_limits=UsageLimits(request_limit=6))
    except UsageLimitExceeded:
        return AGAIN
    if '"tool-return"' not in found.all_messages_json().decode():
        return f"works; the model called no tool: {found.output[:60]!r}"
    return checked(person) if (told := used(found.output)) == "works" else told


def instructor(url: str, model: str) -> str:
    import instructor

    client = openai_client(url)
    said: list[Any] = [{"role": "user", "content": SENTENCE}]
    found = None
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        asked: Any = instructor.from_openai(client, mode=mode)
        found = asked.chat.completions.create(
            model=model, messages=said, response_model=Person, max_tokens=MOST_TOKENS, temperature=0
        )
        assert isinstance(found, Person), mode
    return checked(found)


def aider(url: str, model: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        Path(name, "hello.py").write_text('print("hello")\n')
        told = said_by(
            [
                *(str(Path(sys.executable).with_name("aider")), "--model", f"openai/{model}"),
                *("--openai-api-base", f"{url}/v1", "--openai-api-key", "none", "--edit-format", "whole"),
                *("--no-git", "--yes-always", "--no-show-model-warnings", "--analytics-disable"),
                *("--no-check-update", "--map-tokens", "0", "--no-pretty", "--timeout", "1800"),
                *("--message", "Change the word hello to goodbye.", "hello.py"),
            ],
            name,
        )
        made = Path(name, "hello.py").read_text()
    assert "Tokens:" in told, told[-400:]
    if made == 'print("hello")\n':
        return f"works; the model wrote no edit: {told[-200:]!r}"
    whole = made.replace("'", '"').strip() == 'print("goodbye")'
    return "works" if whole else f"works; the model wrote a wrong edit: {made[:200]!r}"


if __name__ == "__main__":
    name, url, model = sys.argv[1:]
    print(globals()[name](url, model))
