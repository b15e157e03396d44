"""What the tests of a long conversation say to the bundled model."""

from pathlib import Path

from h2o_chat.base.config import Sampling

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
GREEDY = Sampling(temperature=0.0, max_tokens=12)
FACT = "My dog is called Rexo."
TALK = (
    "I went to the market and bought apples, pears, plums and a big bag of rice for the whole week.",
    "Then an old friend told me a long story about his holiday in the mountains with snow and rain.",
    "The weather will be fine tomorrow, with some clouds in the morning and sun in the afternoon.",
)
