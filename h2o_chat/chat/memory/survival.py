"""How long tokens survive: at each step, how many heads held each range of positions."""

from dataclasses import dataclass, field

COLUMNS = 256
"""The most ranges of positions; when they are used up, neighbours become one."""
STEPS = 64
"""The most rows; when they are used up, every second one is forgotten."""


@dataclass
class Step:
    """What was held when so much had been seen."""

    seen: int
    held: list[float]
    """The sum of hold in each range."""


@dataclass
class Lives:
    """The history of a conversation in a fixed amount of memory, however long it is."""

    width: int = 1
    """Positions in a range: a power of two."""
    steps: list[Step] = field(default_factory=list)
    _every: int = 1
    """So many states make a row: a power of two."""
    _skipped: int = 0

    def add(self, seen: int, hold: dict[int, float]) -> None:
        """One more state; `hold` by position, of the tokens that are held."""
        while self.steps and self.steps[-1].seen > seen:  # the conversation went back
            self.steps.pop()
        while seen > self.width * COLUMNS:
            self.width *= 2
            for step in self.steps:
                step.held = [sum(step.held[at : at + 2]) for at in range(0, len(step.held), 2)]
        held = [0.0] * -(-seen // self.width)
        for position, share in hold.items():
            if 0 <= position < seen:
                held[position // self.width] += share
        if self._skipped and self.steps:
            self.steps.pop()  # the newest one stays only until the next, unless its turn has come
        self.steps.append(Step(seen, held))
        self._skipped = (self._skipped + 1) % self._every
        if len(self.steps) > STEPS and not self._skipped:
            self.steps = self.steps[::2]
            self._every *= 2
            self._skipped = 0
