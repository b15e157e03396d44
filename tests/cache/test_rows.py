"""Rows of different age, each with its own system prompt and pins, equal the same rows alone, in float64."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from feeding import kept_by, tokens
from tiny_models import VOCAB, tiny
from torch import Tensor

from h2o_chat import H2OCache
from h2o_chat.base.errors import BudgetError, UsageError
from h2o_chat.cache.forward_call import Step
from h2o_chat.cache.rope import Positions
from h2o_chat.transformers_cache.probe import probe

BUDGET = 32
LONGEST = 64  # tokens of the trained window: keys are clamped and turned back on the way
SYSTEM = (5, 0, 3)  # first tokens of each row that are protected
PINS: tuple[set[int], ...] = ({12, 50, 70}, {3, 40}, set())
"""Per row: some read with the first prompt, some generated later, at another age of each row."""
AGES = (30, 9, 55)


def noise(count: int, seed: int) -> list[int]:
    return tokens(count, seed)[0].tolist()


class TurnTokens:
    """A model and a cache of some rows."""

    def __init__(self, family: str, **how: Any) -> None:
        longest = 100 if how.get("policy") == "full" else LONGEST
        self.model = tiny(family, "h2o", max_position_embeddings=longest)
        self.trained: Positions = probe(self.model, chats=True)
        self.cache = H2OCache(BUDGET, positions=self.trained, observe=True, **how)

    @torch.inference_mode()
    def feed(self, rows: Sequence[Sequence[int]], prompt: bool) -> list[Tensor]:
        """Logits [N, V] of each row's tokens; a row may have none."""
        columns = max(map(len, rows))
        missing = [columns - len(row) for row in rows]
        ids = torch.tensor([[0] * n + [*row] for n, row in zip(missing, rows, strict=True)])
        real = torch.arange(columns) >= torch.tensor(missing)[:, None] if any(missing) else None
        self.cache.prepare(Step(columns, prompt, real))
        mask = torch.ones_like(ids) if real is None else real.long()
        where = self.cache.position_ids().expand(len(rows), -1)
        logits = self.model(ids, attention_mask=mask, position_ids=where, past_key_values=self.cache).logits
        return [logits[row, missing[row] :] for row in range(len(rows))]

    def feed_row(self, row: int, tokens: Sequence[int], prompt: bool) -> Tensor:
        """The other rows wait."""
        rows: list[Sequence[int]] = [[] for _ in self.cache.clocks]
        rows[row] = tokens
        return self.feed(rows, prompt)[row]


def alone(family: str, row: int, **how: Any) -> TurnTokens:
    one = TurnTokens(family, **how)
    one.cache.protect(SYSTEM[row])
    one.cache.pin(PINS[row])
    return one


def same(together: TurnTokens, row: int, expected: TurnTokens) -> None:
    assert kept_by(together.cache, row) == kept_by(expected.cache, 0), f"row {row}"
    assert together.cache.protected_in(row) == expected.cache.protected, f"row {row}"
    lost = sum(float(arena.lost[row]) for arena in together.cache.current_arenas())
    assert lost == pytest.approx(sum(float(arena.lost[0]) for arena in expected.cache.current_arenas()))


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize(
    ("family", "how"),
    [
        ("llama", {"policy": "h2o"}),
        ("llama", {"policy": "h2o", "kv": "int8"}),
        ("llama", {"policy": "h2o-paper"}),
        ("llama", {"policy": "full", "kv": "int4"}),
        ("llama", {"policy": "lru"}),
        ("gemma3_text", {"policy": "h2o"}),
        ("opt", {"policy": "caote", "kv": "int4"}),
    ],
)
def test_rows_with_their_own_pins_equal_the_rows_alone_while_one_is_refilled(
    family: str, how: dict[str, Any]
) -> None:
    together = TurnTokens(family, **how)
    for row in range(3):
        together.cache.protect(SYSTEM[row], row=row)
        together.cache.pin(PINS[row], row=row)
    ones = [alone(family, row, **how) for row in range(3)]

    def step(rows: list[list[int]], prompt: bool) -> None:
        for row, logits in enumerate(together.feed(rows, prompt)):
            if rows[row]:
                close(logits, ones[row].feed([rows[row]], prompt)[0])
            same(together, row, ones[row])

    step([noise(age, row) for row, age in enumerate(AGES)], True)
    for number in range(20):
        step([noise(1, 10 * number + row) for row in range(3)], False)
    # Row 1 is emptied and gets another conversation; the others wait, then all go on.
    together.cache.put_row(1, None)
    assert kept_by(together.cache, 1) == [[[]] * len(heads) for heads in kept_by(together.cache, 0)]
    assert together.cache.protected_in(1) == (
        0 if how["policy"] in ("h2o-paper", "full", "lru", "h2o") else 4
    )
    ones[1] = TurnTokens(family, **how)
    for cache, row in ((together.cache, 1), (ones[1].cache, 0)):
        cache.protect(5, row=row)
        cache.pin([8, 30], row=row)
    step([[], noise(26, 500), []], True)
    for number in range(20):
        step([noise(1, 1000 + 10 * number + row) for row in range(3)], False)
    if how["policy"] != "full":
        assert min(clock.rope_origin for clock in together.cache.clocks[::2]) > 0 or family == "opt"
    for row in (0, 2):  # one lets go, the others keep theirs
        together.cache.unpin(row=row)
        ones[row].cache.unpin()
    step([noise(1, 2000 + row) for row in range(3)], False)


@pytest.mark.parametrize(("policy", "kv"), [("h2o", "auto"), ("h2o-paper", "int8"), ("full", "int4")])
def test_a_row_that_was_taken_goes_on_in_another_row_and_another_cache(policy: str, kv: str) -> None:
    """The rows that it leaves and joins go on as if it had never been there."""
    together = TurnTokens("gemma3_text", policy=policy, kv=kv)
    together.cache.protect(5, row=1)
    together.feed([noise(age, row) for row, age in enumerate(AGES)], True)
    together.cache.pin([2, 60], row=1)
    for number in range(9):
        together.feed([noise(1, 10 * number + row) for row in range(3)], False)
    assert [together.cache.protected_in(row) for row in range(3)] == [0, 6, 0]
    taken = together.cache.take_row(1)
    before = kept_by(together.cache, 1)
    elsewhere = TurnTokens("gemma3_text", policy=policy, kv=kv)
    elsewhere.cache.restore(taken)
    assert kept_by(elsewhere.cache, 0) == before
    together.cache.put_row(1, together.cache.take_row(2))
    together.cache.put_row(0, taken)
    assert together.cache.protected_in(0) == together.cache.protected == elsewhere.cache.protected
    for number in range(9):
        two = noise(2, 100 + number)
        first, second, third = together.feed([two[:1], two[1:], two[1:]], False)
        close(first, elsewhere.feed([two[:1]], False)[0])
        close(second, third)
        assert kept_by(together.cache, 0) == kept_by(elsewhere.cache, 0)
        assert kept_by(together.cache, 1) == kept_by(together.cache, 2)
    together.cache.put_row(2, taken)  # it serves more than once
    assert kept_by(together.cache, 2) == before


def test_what_is_protected_for_every_row_is_so_in_rows_to_come() -> None:
    together = TurnTokens("llama")
    together.cache.protect(4)
    together.cache.pin([9], row=1)
    together.cache.pin([12])
    assert together.cache.protected == 6
    assert [together.cache.protected_in(row) for row in range(2)] == [5, 6]
    together.feed([noise(20, row) for row in range(3)], True)
    assert [together.cache.protected_in(row) for row in range(3)] == [5, 6, 5]
    with pytest.raises(UsageError, match="no row 3"):
        together.cache.pin([1], row=3)
    with pytest.raises(BudgetError, match="at most 9 may be protected, and 6 are"):
        together.cache.pin(range(14, 18), row=1)
    assert together.cache.pin(range(14, 18), row=0) == 4
    with pytest.raises(BudgetError, match="at most 9"):
        together.cache.pin([18])
    assert [together.cache.protected_in(row) for row in range(3)] == [9, 6, 5], "nothing has changed"
    together.cache.reset()
    assert together.cache.protected == 0


def test_rows_that_were_named_have_to_come() -> None:
    together = TurnTokens("llama")
    together.cache.protect(4, row=2)
    with pytest.raises(UsageError, match="protected in row 2, and the batch has 2 rows"):
        together.feed([noise(5, 0), noise(5, 1)], True)


def test_only_one_row_alike_can_be_put() -> None:
    together = TurnTokens("llama")
    together.feed([noise(20, row) for row in range(2)], True)
    with pytest.raises(UsageError, match="2 rows cannot be put into row 0"):
        together.cache.put_row(0, together.cache.snapshot())
    with pytest.raises(UsageError, match="is of a cache with caote"):
        together.cache.put_row(0, TurnTokens("llama", policy="caote").cache.snapshot())
    with pytest.raises(UsageError, match="no row 2"):
        together.cache.put_row(2, together.cache.take_row(1))


def test_rows_that_are_all_emptied_are_as_new() -> None:
    """Attention of the last token to slots that are now empty is added to no score."""
    torch.manual_seed(0)
    before, after = torch.randint(3, VOCAB, (2, 40)), torch.randint(3, VOCAB, (30,)).tolist()
    used, new = (TurnTokens("llama", policy="h2o-paper") for _ in range(2))
    used.feed(before[:, :30].tolist(), prompt=True)
    new.feed([[5], [5]], prompt=True)
    for token in before[:, 30:].T.tolist():
        used.feed([[one] for one in token], prompt=False)
    for one in (used, new):
        one.cache.put_row(0, None)
        one.cache.put_row(1, None)
        for token in after:
            logits = one.feed_row(1, [token], prompt=False)
    assert kept_by(used.cache, 1) == kept_by(new.cache, 1)
    expected = new.feed_row(1, [7], prompt=False)
    torch.testing.assert_close(used.feed_row(1, [7], prompt=False), expected)
    assert logits.isfinite().all()
    for ours, theirs in zip(used.cache.current_arenas(), new.cache.current_arenas(), strict=True):
        torch.testing.assert_close(ours.slots.score[:, 1], theirs.slots.score[:, 1])


def test_a_step_is_fed_once_and_as_it_was_said() -> None:
    one = TurnTokens("llama")
    one.feed([[5, 6, 7]], prompt=True)
    one.cache.prepare(Step(1))
    with pytest.raises(UsageError, match="was prepared, and not fed"):
        one.cache.prepare(Step(1))
    with pytest.raises(UsageError, match="A step of 1 tokens was prepared, and 2 are fed"):
        one.model(torch.tensor([[8, 9]]), past_key_values=one.cache)


def test_after_a_step_that_failed_there_is_no_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one = TurnTokens("llama")
    one.feed([[5, 6, 7]], prompt=True)
    before = one.cache.snapshot()
    broken = one.model.model.layers[1].self_attn

    def fails(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(broken, "forward", fails)
        with pytest.raises(KeyboardInterrupt):
            one.feed([[8]], prompt=False)
    with pytest.raises(UsageError, match="ended in the middle"):
        one.feed([[8]], prompt=False)
    one.cache.restore(before)
    assert one.feed([[8]], prompt=False)[0].isfinite().all()


def test_a_row_of_another_model_is_refused() -> None:
    one, other = TurnTokens("llama"), TurnTokens("llama")
    other.model.float()
    for fed in (one, other):
        fed.feed([[5, 6, 7], [8, 9, 10]], prompt=True)
    with pytest.raises(UsageError, match="snapshot is of layers"):
        one.cache.put_row(0, other.cache.take_row(0))


def test_a_row_that_was_taken_before_its_first_token_can_be_put() -> None:
    one = TurnTokens("llama")
    fresh = TurnTokens("llama").cache.snapshot()
    one.feed([[5, 6, 7], [8, 9, 10]], prompt=True)
    one.cache.put_row(1, fresh)
    assert kept_by(one.cache, 1) == [[[], []] for _ in one.cache.layers]


def test_every_row_twice_goes_on_as_each_did() -> None:
    once, twice = TurnTokens("llama"), TurnTokens("llama")
    for fed in (once, twice):
        fed.feed([noise(40, seed=1), noise(40, seed=2)], prompt=True)
    twice.cache.batch_repeat_interleave(2)
    for token in noise(20, seed=3):
        logits = once.feed([[token], [VOCAB - token]], prompt=False)
        more = twice.feed([[token], [token], [VOCAB - token], [VOCAB - token]], prompt=False)
        for row in range(4):
            close(more[row], logits[row // 2])
            assert kept_by(twice.cache, row) == kept_by(once.cache, row // 2)
