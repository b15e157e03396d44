"""On the screen answers are drawn as each model's makers recommend, but for what a person has named."""

from pathlib import Path

from screens import WIDE, Screen

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.opening import opener, opener_of
from h2o_chat.tui.chat_app import ChatApp


async def test_another_model_is_sampled_as_its_own_makers_recommend(shared_models: Path) -> None:
    settings = Settings(model=str(shared_models / "stories260k"), budget=64, threads=1, seed=7)
    named = {"top_p"}
    app = ChatApp(
        opener(settings, None, named=named),
        settings,
        Sampling(top_p=0.5, max_tokens=5),
        opener_of=opener_of(settings, None, named=named),
    )
    async with app.run_test(size=WIDE) as pilot:
        screen = Screen(app, pilot)
        await screen.opened()
        drawn = Sampling(temperature=0.7, top_p=0.5, min_p=0.05, max_tokens=5)
        assert app.pane.sampling == drawn, "stories260k says nothing"
        await screen.ask("/set min_p 0.2")
        await screen.answered()
        await screen.ask("/model pocket")
        await screen.until(lambda: screen.chat.session.model == "pocket", "the other one is open")
        assert app.pane.sampling == Sampling(temperature=0.0, top_p=0.5, min_p=0.2, max_tokens=5)
