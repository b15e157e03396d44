"""A deadline that is called off leaves nothing behind."""

import weakref

from h2o_chat.base.deadline import Deadline


class Held:
    """Stands for a chat, which holds tensors."""

    def last(self) -> None:
        raise AssertionError("it was called off")


def test_what_was_to_be_done_at_the_last_is_let_go_by_who_calls_it_off() -> None:
    """Its sleeping threads would otherwise free tensors while Python shuts down, which aborts (exit -6)."""
    held = Held()
    gone = weakref.ref(held)
    deadline = Deadline(held.last)
    del held
    assert gone() is not None
    deadline.call_off()
    assert gone() is None
