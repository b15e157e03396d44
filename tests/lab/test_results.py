"""Sweeps that were interrupted go on: what was measured is read, and nothing of it is measured again."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.lab.eval import perplexity
from h2o_chat.lab.shared.measured_results import CODE, Results, sources
from h2o_chat.lab.shared.policy_variant import PolicyVariant
from h2o_chat.models.load import Loaded, load
from h2o_chat.transformers_cache.cache import H2OCache

NAMES = ("h2o", "window")


@pytest.fixture(scope="module")
def small(shared_models: Path) -> Loaded:
    return load(Settings(model=str(shared_models / "stories260k"), threads=1), lambda *_: None)


def words(count: int, tokens: int) -> Tensor:
    return torch.randint(3, 500, (count, tokens), generator=torch.Generator().manual_seed(0))


def by_perplexity(loaded: Loaded, results: Results) -> Any:
    wanted = [*map(PolicyVariant, NAMES), PolicyVariant("h2o", chunk=24)]
    return perplexity.measure(loaded, words(3, 64), wanted, [16], 0, prompt=24, results=results)


def test_an_interrupted_sweep_goes_on(small: Loaded, tmp_path: Path) -> None:
    path, calls = tmp_path / "results.jsonl", []
    whole = by_perplexity(small, Results(path))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) + lines[-1][:20])  # killed while it wrote the last one

    def count(_: Any, ids: Any, given: dict[str, Any]) -> None:
        if isinstance(given.get("past_key_values"), H2OCache):  # else it is asked how it turns keys
            calls.append(ids)

    hook = small.model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        assert by_perplexity(small, Results(path)) == whole
        again = len(calls)
        assert again, "the last one was measured again"
        assert by_perplexity(small, Results(path)) == whole
        assert len(calls) == again, "and now nothing is"
        by_perplexity(small, Results(None))
        assert len(calls) > 2 * again, "a whole sweep is more than its last part"
    finally:
        hook.remove()
    assert path.read_text().splitlines(keepends=True) == lines


def test_a_file_that_holds_no_results(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text("[1]\n")
    with pytest.raises(UsageError, match="holds no results"):
        Results(path)


def test_the_code_that_a_result_depends_on_is_found() -> None:
    assert [name for name in CODE if not sources(name)] == []
