"""Who may import whom, read from the source: packages import downwards only, files never in a circle.

Every import counts, also those inside functions and those for type checkers alone.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "h2o_chat"

PACKAGES = (
    "base",
    "events",
    "store",
    "policies",
    "cache",
    "transformers_cache",
    "models",
    "native",
    "graph",
    "engine",
    "remote",
    "chat",
    "serve",
    "tui",
    "lab",  # above the screen, which it measures too
    "cli",
    "cluster",  # its commands name its modules as text: without Ray they cannot be imported
)
"""Each may import those before it and itself."""

ROOMS = ("widgets", "transcript", "panel", "pane", "prompt")
"""Rooms of `tui`: each may import those before it and itself; the files beside them import all."""

HEAVY = {"torch", "transformers", "accelerate", "bitsandbytes"}
LIGHT = ("base", "events", "store", "remote", "chat", "serve", "tui", "cli")
"""These load without `HEAVY`: importing it takes seconds, and help and errors come at once."""


@dataclass(frozen=True)
class Import:
    """One import, in one file."""

    name: str
    """What is imported: a module, or `module.name` where a name is taken from one."""
    line: int
    at_start: bool
    """It runs when the file is imported: it is neither in a function nor for type checkers."""


def imports_of(source: str) -> list[Import]:
    """All imports of a file, wherever they stand."""
    return list(_imports(ast.parse(source), at_start=True))


def _imports(node: ast.AST, at_start: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from (Import(one.name, child.lineno, at_start) for one in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0, f"line {child.lineno}: say from which module, not from how many dots above"
                yield from (Import(f"{module}.{one.name}", child.lineno, at_start) for one in names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _imports(child, at_start=False)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=other):
                for one in body:
                    yield from _imports(ast.Module([one], []), at_start=False)
                for one in other:
                    yield from _imports(ast.Module([one], []), at_start)
            case _:
                yield from _imports(child, at_start)


def _name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@once
def imports() -> dict[str, list[Import]]:
    """Of each file, by its name as a module. Read by the first test that asks: reading takes a second."""
    return {_name_of(path): imports_of(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def file_of(name: str) -> str | None:
    """The file of this project that an import reads; None: it is another's."""
    while name and name not in imports():
        name = name.rpartition(".")[0]
    return name or None


def importers(*libraries: str) -> list[tuple[str, Import]]:
    """The imports of these libraries, each with the file it stands in."""
    return [
        (module, one)
        for module, found in imports().items()
        for one in found
        if one.name.partition(".")[0] in libraries
    ]


def package_of(module: str) -> str | None:
    """The folder it is in; None: `h2o_chat` itself and `__main__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (ROOT / parts[1]).is_dir() else None


def circles(arrows: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Groups of files in which each can be reached from each."""
    reached = {start: _reached(start, arrows) for start in arrows}
    groups = {frozenset(there for there in reached[start] if start in reached[there]) for start in arrows}
    return [set(group) for group in groups if group]


def _reached(start: str, arrows: Mapping[str, Iterable[str]]) -> set[str]:
    """Everything behind the arrows from here on; itself only where one leads back."""
    reached = set[str]()
    left = [start]
    while left:
        for there in arrows[left.pop()]:
            if there not in reached:
                reached.add(there)
                left.append(there)
    return reached


def test_every_folder_has_its_place() -> None:
    there = {path.name for path in ROOT.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert there == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_downwards_only(package: str) -> None:
    above = PACKAGES[PACKAGES.index(package) + 1 :]
    up = [
        f"{module}, line {one.line}: {there}"
        for module, found in imports().items()
        if package_of(module) == package
        for one in found
        if (there := file_of(one.name)) and package_of(there) in above
    ]
    assert not up


def test_rooms_of_the_screen_import_downwards_only() -> None:
    place = {room: at for at, room in enumerate(ROOMS)}

    def height(module: str) -> int:
        parts = module.split(".")
        return place.get(parts[2], len(ROOMS)) if parts[1:2] == ["tui"] else -1

    up = [
        f"{module}, line {one.line}: {there}"
        for module, found in imports().items()
        if package_of(module) == "tui"
        for one in found
        if (there := file_of(one.name)) and height(there) > height(module)
    ]
    assert not up


def test_no_circles_among_files() -> None:
    arrows = {
        module: {there for one in found if (there := file_of(one.name)) and there != module}
        for module, found in imports().items()
    }
    assert not [sorted(group) for group in circles(arrows)]


@pytest.mark.parametrize("package", LIGHT)
def test_loads_without_torch(package: str) -> None:
    """Neither its files nor those that they import at their start."""
    arrows = {
        module: {file_of(one.name) or one.name.partition(".")[0] for one in found if one.at_start}
        for module, found in imports().items()
    }
    everything = arrows | {
        other: set() for there in arrows.values() for other in there if other not in arrows
    }
    heavy = {
        module: sorted(found)
        for module in imports()
        if package_of(module) == package and (found := _reached(module, everything) & HEAVY)
    }
    assert not heavy


@pytest.mark.parametrize("package", ["policies", "cache"])
def test_the_core_does_without_transformers(package: str) -> None:
    """How slots are held and given up is the same, whoever computes the model."""
    places = importers("transformers")
    assert not [place for place in places if package_of(place[0]) == package]


def test_only_the_screen_imports_textual_at_its_start() -> None:
    starts = [module for module, one in importers("textual") if one.at_start]
    assert {package_of(module) for module in starts} == {"tui"}, starts


def test_only_the_server_imports_what_it_is_made_of() -> None:
    places = importers("starlette", "uvicorn", "h11")
    assert {package_of(module) for module, _ in places} == {"serve"}, places


def test_imports_are_seen_wherever_they_stand() -> None:
    found = imports_of(
        "import a\n"
        "if TYPE_CHECKING:\n    from b import c\nelse:\n    import d\n"
        "def f():\n    def g():\n        import e\n"
        "class H:\n    import i\n"
        "try:\n    import j\nexcept ImportError:\n    pass\n"
    )
    assert [(one.name, one.at_start) for one in found] == [
        ("a", True), ("b.c", False), ("d", True), ("e", False), ("i", True), ("j", True),
    ]  # fmt: skip


def test_circles_are_found() -> None:
    arrows = {"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": ["d"], "e": ["a"]}
    assert sorted(map(sorted, circles(arrows))) == [["a", "b", "c"], ["d"]]


def test_files_and_classes_stay_small() -> None:
    """The core, the app and the conversation grow first: they are split before they do."""
    long = []
    for file in sorted(ROOT.rglob("*.py")):
        text = file.read_text("utf-8")
        if text.count("\n") > 400:
            long.append(str(file))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno >= 250:
                long.append(f"{file}: {node.name}")
    assert not long, "over 400 lines a file or 250 a class: split it, or write a function beside it"
