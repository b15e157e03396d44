"""How long tokens survive: at each step, how many heads held each range of positions."""

from dataclasses import dataclass, field

COLUMNS = 256
"""The most ranges of positions; beyond that, neighbours are merged."""
STEPS = 64
"""The most rows; beyond that, every second one is dropped."""


@dataclass
class SurvivalStep:
    seen: int
    held: list[float]
    """Sum of hold in each range."""


@dataclass
class Survival:
    """The history of a conversation in a fixed amount of memory."""

    width: int = 1
    """Positions per range: a power of two."""
    steps: list[SurvivalStep] = field(default_factory=list)
    _every: int = 1
    """States per row: a power of two."""
    _skipped: int = 0

    def add(self, seen: int, hold: dict[int, float]) -> None:
        """Add a state: `hold` by position, for the tokens that are held."""
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
        self.steps.append(SurvivalStep(seen, held))
        self._skipped = (self._skipped + 1) % self._every
        if len(self.steps) > STEPS and not self._skipped:
            self.steps = self.steps[::2]
            self._every *= 2
            self._skipped = 0
