"""Asks a server for answers of random JSON schemas and calls of random tools; all that ended must be valid.

    tools/stress/schemas.py [--schemas 1000] [--tools 100] [--seed 1]

Starts one with the bundled model. An answer that ended by itself is validated by `jsonschema`; one may
be refused (400) in words, or end at its limit of tokens. Hostile schemas first: each must be refused or
answered within 1 s (of processor time: others may use the machine). Ends with exit code 1 at the
first schema that is answered wrongly, with another status or not within 60 s, after shrinking it.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from served import Server

LONGEST_S = 60
HOSTILE_S = 1.0
TOKENS = 120
NAMES = ("name", "age", "a b", "", 'qu"ote', "ünï", "$ref", "back\\slash", "<tool_call>", "x" * 40)
PATTERNS = ("^[a-z]+$", "^\\d{3}-\\d{4}$", "(ab|cd)*", "[^x]", "^.{2,5}$", "a", "\\w+@\\w+\\.org", "^$")
FORMATS = ("date", "time", "date-time", "email", "uuid", "ipv4", "uri", "hostname")
Schema = dict[str, Any]


def numbers(kind: str) -> st.SearchStrategy[Schema]:
    bound = st.integers(-1000, 1000)
    keys = {"minimum": bound, "exclusiveMinimum": bound, "maximum": bound, "exclusiveMaximum": bound}
    chosen = st.fixed_dictionaries({}, optional=keys | {"multipleOf": st.sampled_from([1, 2, 7, 0.5])})
    return chosen.map(lambda one: {"type": kind, **one})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(-1e9, 1e9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
LENGTHS = st.fixed_dictionaries(
    {}, optional={"minLength": st.integers(0, 6), "maxLength": st.integers(4, 12)}
)
PLAIN: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([{}, True, {"type": "null"}, {"type": "boolean"}, {"type": ["string", "null"]}]),
    LENGTHS.map(lambda one: {"type": "string", **one}),
    st.sampled_from(PATTERNS).map(lambda one: {"type": "string", "pattern": one}),
    st.sampled_from(FORMATS).map(lambda one: {"type": "string", "format": one}),
    numbers("integer"),
    numbers("number"),
    st.lists(VALUES, min_size=1, max_size=4).map(lambda some: {"enum": some}),
    VALUES.map(lambda one: {"const": one}),
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Arrays, objects and choices of schemas."""
    few = st.integers(0, 3)
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner,
            "prefixItems": st.lists(inner, max_size=2),
            "minItems": few,
            "maxItems": st.integers(2, 4),
            "uniqueItems": st.booleans(),
        },
    )
    properties = st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": properties},
        optional={
            "required": st.lists(st.sampled_from(NAMES), max_size=3, unique=True),
            "additionalProperties": st.just(False) | inner,
            "patternProperties": st.dictionaries(st.sampled_from(PATTERNS[:1]), inner, max_size=1),
            "minProperties": few,
            "title": st.text(max_size=5),
        },
    )
    some = st.lists(inner, min_size=1, max_size=3)
    mixed = st.sampled_from(["anyOf", "oneOf", "allOf"]).flatmap(lambda key: some.map(lambda of: {key: of}))
    return arrays | objects | objects | mixed


def chained(one: Any) -> Schema:
    """A chain of such values: the schema refers to itself."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "is": one}, "required": ["is"]}
    return {"$defs": {"node": node}, "$ref": "#/$defs/node"}


SCHEMAS = st.one_of(
    st.recursive(PLAIN, larger, max_leaves=6).map(lambda one: one if isinstance(one, dict) else {}),
    st.recursive(PLAIN, larger, max_leaves=2).map(chained),
)
PARAMETERS = st.recursive(PLAIN, larger, max_leaves=4).map(
    lambda one: one if isinstance(one, dict) and one.get("type") == "object" else {}
)
TOOLS = st.lists(
    st.tuples(
        st.sampled_from([one for one in NAMES if one]),
        st.text(max_size=20),
        PARAMETERS,
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda one: one[0],
)


def nested(key: str, depth: int) -> Schema:
    made: Schema = {"type": "string"}
    for _ in range(depth):
        made = {"type": "object", "properties": {"a": made}, "required": ["a"]}
        made = {key: [made, {"type": "null"}]}
    return made


WIDE = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(5000)}}
BOMB: Schema = {"$defs": {"d0": {"type": "string"}}, "$ref": "#/$defs/d30"} | {
    "$defs": {"d0": {"type": "string"}}
    | {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at - 1}"}] * 2} for at in range(1, 31)}
}
HOSTILE: dict[str, Schema] = {
    "pattern (a+)+": {"type": "string", "pattern": "^(a+)+b(a|a)*(a|aa)+$"},
    "pattern a{1,50000}": {"type": "string", "pattern": "^(a{1,500}){1,100}$"},
    "pattern nested counts": {"type": "string", "pattern": "^((((a{1,30}){1,30}){1,30}){1,30}){1,30}$"},
    "pattern of 99 wildcards": {"type": "string", "pattern": "|".join(f".*{at}.*" for at in range(99))},
    "maxLength 10^9": {"type": "string", "minLength": 10**8, "maxLength": 10**9},
    "minItems 10^7": {"type": "array", "items": {"type": "integer"}, "minItems": 10**7},
    "enum of 20,000": {"enum": [f"value {at}" for at in range(20_000)]},
    "5,000 properties": WIDE,
    "5,000 required properties": WIDE | {"required": [f"p{at}" for at in range(5000)]},
    "anyOf 200 deep": nested("anyOf", 100),
    "allOf 60 deep": nested("allOf", 30),
    "oneOf 60 deep": nested("oneOf", 30),
    "doubling references": BOMB,
    "a reference to itself": {"$ref": "#"},
    "a reference to another machine": {"$ref": "http://127.0.0.1:1/schema.json"},
    "a reference to a file": {"$ref": "file:///etc/passwd"},
    "nothing is allowed": {"type": "integer", "minimum": 5, "maximum": 4},
    "multipleOf of large primes": {
        "type": "integer",
        "allOf": [{"multipleOf": one} for one in (99991, 99989, 99971)],
    },
    "allOf of 40 anyOf": {
        "allOf": [{"anyOf": [{"pattern": f"a{at}"}, {"pattern": f"b{at}"}]} for at in range(40)]
    },
    "a bound of 300 digits": {"type": "number", "minimum": 10**300},
}  # fmt: skip


class Asker:
    """Asks, and counts what came."""

    def __init__(self, server: Server) -> None:
        self.server, self.counted, self.longest_s = server, Counter[str](), 0.0
        self.reasons = Counter[str]()

    def choice(self, **asked: Any) -> Any:
        """The choice of an answer; None: it was refused."""
        body = {"messages": [{"role": "user", "content": "My name is Ada. Write it."}], **asked}
        body |= {"max_tokens": TOKENS, "temperature": 1, "seed": 1, "cache_prompt": False}
        begun = time.monotonic()
        status, found = self.server.chat(body, LONGEST_S)
        self.longest_s = max(self.longest_s, time.monotonic() - begun)
        if status == 400:
            self.counted["refused"] += 1
            self.reasons[found["error"]["message"].split("Lark")[-1][:110]] += 1
            return None
        assert status == 200, found
        choice = found["choices"][0]
        self.counted[choice["finish_reason"]] += 1
        return choice

    def schema(self, schema: Schema) -> None:
        wanted = {"type": "json_schema", "json_schema": {"name": "random", "schema": schema}}
        choice = self.choice(response_format=wanted)
        if choice is not None and choice["finish_reason"] == "stop":
            value = json.loads(choice["message"]["content"])
            Draft202012Validator(schema).validate(value)

    def tools(self, tools: list[tuple[str, str, Schema]]) -> None:
        made = [
            {"type": "function", "function": {"name": name, "description": told, "parameters": schema}}
            for name, told, schema in tools
        ]
        choice = self.choice(tools=made, tool_choice="required")
        if choice is None or choice["finish_reason"] == "length":
            return
        (call,) = choice["message"]["tool_calls"]
        schemas = {name: schema for name, _, schema in tools}
        value = json.loads(call["function"]["arguments"])
        Draft202012Validator(schemas[call["function"]["name"]]).validate(value)

    def tell(self, what: str) -> None:
        print(f"{what}: {dict(self.counted)}, longest {self.longest_s:.2f} s", flush=True)
        for reason, times in self.reasons.most_common(12):
            print(f"  {times} refused: {reason}", flush=True)
        self.counted.clear()
        self.reasons.clear()
        self.longest_s = 0.0


def hostile(asker: Asker) -> bool:
    """Asks for hostile schemas; returns whether each ended in time."""
    well = True
    for what, schema in HOSTILE.items():
        before_s, begun = asker.server.cpu_s(), time.monotonic()
        asker.schema(schema)
        used_s, took_s = asker.server.cpu_s() - before_s, time.monotonic() - begun
        (ended,) = asker.counted
        asker.counted.clear()
        print(f"  {what}: {ended}, {used_s:.2f} s of processors, {took_s:.2f} s", flush=True)
        well &= used_s <= HOSTILE_S
    return well


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--tools", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    few = settings(database=None, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)
    flags = ["-m", "pocket", "--no-store", "-b", "512"]
    with tempfile.TemporaryDirectory() as name, Server(flags, Path(name) / "data") as server:
        asker = Asker(server)
        asker.schema({"type": "boolean"})  # the first one loads llguidance
        asker.counted.clear()
        asker.longest_s = 0.0
        well = hostile(asker)
        for what, strategy, ask, most in (
            ("schemas", SCHEMAS, asker.schema, asked.schemas),
            ("tool lists", TOOLS, asker.tools, asked.tools),
        ):
            if most:
                seed(asked.seed)(settings(few, max_examples=most)(given(strategy)(ask)))()
            asker.tell(what)
        wrong = server.end()
    print(*wrong, end="")
    return int(not well or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
