"""Saved caches: cut, flipped, and crafted with the right checksums; and databases that were damaged."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, deserialize

from fuzzing.mutate import mutated, restructured
from fuzzing.reader import Reader
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import SavedCacheError, WindowFullError
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.saved_cache import _check
from h2o_chat.events.events import Token
from h2o_chat.models.load import load
from h2o_chat.store import DATABASE, Store


def readers(folder: Path) -> Iterator[Reader]:
    """Those of saved caches and of the database; `folder / here` has a whole model."""
    saved = _Saved(folder)
    yield Reader("saved caches", saved.examples, saved, share=2, make=_crafted)
    database = _Database(folder / "database")
    yield Reader("databases", [database.example], database, share=2, make=_damaged)


class _Saved:
    """Read by the engines that wrote them; one that is taken must go on."""

    def __init__(self, folder: Path) -> None:

        torch.set_num_threads(1)
        self.path = folder / "saved.safetensors"
        self.sampling = Sampling(max_tokens=2, ignore_eos=True, temperature=1.0)
        loaded = load(Settings(model=str(folder / "here"), threads=1), lambda *_: None)
        kinds = (Settings(budget=12, chunk=4, seed=1), Settings(policy="full", seed=1))
        self.engines = [Engine(loaded, settings) for settings in kinds]
        self.examples = []
        for engine in self.engines:
            for ids in ([5, 6, 7], list(range(20))):
                list(engine.generate(ids, self.sampling))
                engine.save(self.path)
                self.examples.append(self.path.read_bytes())

    def __call__(self, raw: bytes) -> None:
        self.path.write_bytes(raw)
        refused: list[SavedCacheError] = []
        for engine in self.engines:
            engine.reset()
            try:
                engine.load(self.path)
            except SavedCacheError as error:
                refused.append(error)
                continue
            try:
                for event in engine.generate([1, 2], self.sampling):
                    if isinstance(event, Token):
                        engine.inspect(event.position)
            except WindowFullError:  # the whole window was saved
                continue
            engine.save(self.path)
        if len(refused) == len(self.engines):
            raise refused[0]


def _crafted(rng: Random, examples: Sequence[bytes]) -> bytes:
    """A file with something exchanged in its tensors or its description, and checksums that are right."""
    if rng.random() < 0.3:
        return mutated(rng, examples)

    raw = rng.choice(examples)
    tensors = safetensors.torch.load(raw)
    length = int.from_bytes(raw[:8], "little")
    about = json.loads(json.loads(raw[8 : 8 + length])["__metadata__"]["h2o-chat"])
    if rng.random() < 0.4:
        about = restructured(rng, about)
    else:
        for _ in range(rng.choice((1, 1, 3))):
            _change(rng, tensors)
    if isinstance(about, dict) and isinstance(about.get("checks"), dict):
        about["checks"] |= {name: _check(tensor) for name, tensor in tensors.items()}
    try:
        text = json.dumps(about).encode("utf-8", "replace").decode()
        return safetensors.torch.save(tensors, metadata={"h2o-chat": text})
    except SafetensorError:
        assert deserialize(raw)  # type: ignore[no-untyped-call]
        return raw


def _change(rng: Random, tensors: dict[str, Any]) -> None:
    """One tensor has other numbers, another shape or type, or is not there."""
    name = rng.choice([*tensors, "random", "pending", "history", "texts"])
    tensor = tensors.get(name, torch.zeros(3))
    match rng.randrange(8):
        case 0:
            tensors.pop(name, None)
            tensors["stranger"] = tensor
        case 1:
            kinds = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.float64, torch.bfloat16)
            tensors[name] = tensor.to(rng.choice(kinds)).contiguous()
        case 2:
            tensors[name] = tensor.flatten()[: rng.randint(0, tensor.numel())].clone()
        case 3:
            tensors[name] = torch.cat([tensor, tensor]) if tensor.ndim else tensor.reshape(1, 1)
        case _:
            tensor = tensor.clone()
            flat = tensor.view(-1)
            for _ in range(rng.choice((1, 1, 5, 50))):
                if flat.numel():
                    flat[rng.randrange(flat.numel())] = _number(rng, tensor)
            tensors[name] = tensor


def _number(rng: Random, tensor: Any) -> Any:
    if tensor.dtype == torch.bool:
        return rng.random() < 0.5
    if tensor.is_floating_point():
        top = torch.finfo(tensor.dtype).max
        return rng.choice((0.0, -1.0, 1e-30, top, -top, float("nan"), float("inf"), rng.random()))
    about = torch.iinfo(tensor.dtype)
    some = (0, 1, -1, 5, 8, 9, 31, 32, 63, 64, 255, 258, 1000, 2**31 - 1, 2**62, about.max, about.min)
    return rng.choice([one for one in some if about.min <= one <= about.max])


class _Database:
    """A file in the place of the database: what can still be read is read, the rest is refused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / DATABASE
        store = Store(folder)
        for title in ("one", "two"):
            with store.begin(title, {"budget": 64}) as writer:
                writer.run({"model": "m"})
                writer.place(writer.said("user", "What is my name?", [1, 2, 3]), 0, 2)
                writer.answering()
                writer.token(4, "Your")
                if title == "one":
                    writer.finished("Your", "eos", 3, 3)
        store.close()
        self.example = self.path.read_bytes()

    def __call__(self, raw: bytes) -> None:
        for path in self.folder.glob("*.db*"):
            path.unlink()
        self.path.write_bytes(raw)
        store = Store(self.folder)
        try:
            for about in store.list():
                store.search("name")
                store.last_run(about.id)
                store.whole(store.find(about.id))
                with store.claim(about.id) as writer:
                    writer.said("user", "More.")
        finally:
            store.close()


def _damaged(rng: Random, examples: Sequence[bytes]) -> bytes:
    """Some bytes exchanged; not so many that nothing can be read."""
    raw = bytearray(rng.choice(examples))
    for _ in range(rng.choice((1, 1, 5, 50))):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw[: rng.randrange(len(raw))] if rng.random() < 0.1 else raw)
