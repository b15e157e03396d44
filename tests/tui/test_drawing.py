"""The small pure parts: safe text, Markdown without loss, glyphs."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content

from h2o_chat.base.glyphs import bar, gauge, percent, short, size, spark
from h2o_chat.base.safe import fit, safe_text, token_label
from h2o_chat.tui.transcript import markdown
from h2o_chat.tui.transcript.message_body import Growing


@given(st.text())
def test_no_control_character_survives(text: str) -> None:
    shown = safe_text(text)
    assert not [c for c in shown if ord(c) < 32 and c not in "\n\t"]
    assert not [c for c in shown if 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000]
    shown.encode("utf-8")


def test_escapes_have_pictures() -> None:
    assert safe_text("\x1b[31m\r\x00\x7f\x9b a\r\nb\tc") == "␛[31m␍␀␡� a\nb\tc"
    assert safe_text("\u202eabc\u2066") == "�abc�"


def test_token_labels_are_visible_and_on_one_line() -> None:
    labels = [token_label(text) for text in (" Priya", "\n", "  ", "\t", "", "a\nb", "\x1b[3")]
    assert labels == ["Priya", "↵", "␣␣", "⇥", "∅", "a↵b", "␛[3"]


@given(st.text(max_size=30), st.integers(0, 20))
def test_fit_is_exact_in_cells(text: str, cells: int) -> None:
    assert cell_len(fit(safe_text(text).replace("\n", " ").replace("\t", " "), cells)) == cells


_markup = st.lists(
    st.sampled_from(
        [
            *("word", "List<int>", "<div>", "</div>", "[a](http://x.y)", "![i](y)", "&lt;", "\\(x\\)"),
            *("`code`", "**bold**", "*it*", "~~s~~", "\n", "\n\n", "\n- ", "\n3. ", "\n> ", "\n# "),
            *(
                "\n```py\n",
                "\n    ",
                "|",
                "---",
                "\n| a | b\n|--|-:|\n| c | d | e |\n",
                "\\|",
                "[a](/b_c_)",
                "[r]: http://z",
                " ",
                "_",
                "*",
                "[/b]",
                "\n7) ",
                "<a@b.cd>",
            ),
        ]
    ),
    max_size=30,
).map("".join)


@given(_markup)
def test_markdown_loses_no_word(source: str) -> None:
    assert _letters(markdown.render(source).plain) == _letters(source)


@given(_markup)
@example("\n| a | b\n|--|-:|\n| c | d | e |\n")
@example(" \n| a | b\n|--|-:|\n| c | d | e |\n")
def test_a_divided_text_is_the_same(source: str) -> None:
    """Drawing the part before the cut alone and the rest alone gives the words of the whole, in order."""
    if not source:
        return
    cut = markdown.cut(source)
    assert 0 < cut.at <= len(source)
    parts = markdown.render(source[: cut.at]).plain + markdown.render(cut.reopen + source[cut.at :]).plain
    assert _letters(parts) == _letters(source)


def rows(source: str, width: int) -> list[str]:
    return [row.plain.rstrip() for row in markdown.render(source).wrap(width)]


_words = st.lists(st.text("abc0123 -+#>.)*_`<&[\té界", min_size=1, max_size=9), max_size=80).map(" ".join)


@given(_markup | _words, st.integers(4, 90))
@example("word[r]: http://z", 4)
@example("some words some words some words a\tb", 10)
def test_nobody_sees_where_a_growing_text_is_divided_early(source: str, width: int) -> None:
    cut = markdown.early_cut(source, width) if source else None
    if cut is not None:
        before, rest = source[: cut.at].removesuffix(" "), source[cut.at :]
        gap = [""] if cut.joint == "\n\n" else []
        assert rows(before, width) + gap + rows(rest, width) == rows(source, width)


_items = st.lists(st.text("abc ", min_size=30, max_size=90).map(lambda text: f"b{text}"), max_size=15)


@given(_items, st.sampled_from(["\n", "\n\n"]), st.integers(1, 99), st.integers(1, 9), st.integers(12, 90))
@example(["some words " * 4] * 9, "\n\n", 1, 1, 40)
def test_a_growing_numbered_list_is_drawn_as_the_whole_one(
    items: list[str], between: str, first: int, step: int, width: int
) -> None:
    source = between.join(["Here it is:\n", *(f"{n}. {item}" for n, item in enumerate(items, first))])
    growing = Growing(width)
    for at in range(0, len(source), step):
        growing.write(source[at : at + step])
    growing.close(source, Content())
    drawn = [
        row.plain.rstrip()
        for piece in growing.pieces
        for row in [*piece.content.wrap(width), *[Content()] * piece.gap]
    ]
    assert drawn == rows(source, width)


def test_where_a_growing_text_is_divided_early() -> None:
    words = "some words " * 9
    assert markdown.early_cut(words, 22) == markdown.Cut(len("some words " * 6), " ")
    assert markdown.early_cut(words, 0) is None  # nobody knows in which width it is drawn
    assert markdown.early_cut(f"{words}*more", 22) is None  # it may yet become markup
    assert markdown.early_cut(f"{words}\tmore", 22) is None  # tab stops count from a piece's beginning
    assert markdown.early_cut("1. one\n\n2", 22) is None  # it may yet become the next item
    assert markdown.early_cut("one\n\ntwo\nthree", 22) == markdown.Cut(len("one\n\n"), "\n\n")


@pytest.mark.parametrize(
    ("source", "before", "joint", "reopen"),
    [
        ("one\n\ntwo\nthree", "one\n\n", "\n\n", ""),
        ("1. one\n2. two\n3. thr", "1. one\n2. two\n", "\n", ""),
        ("- one\n\n- two", "- one\n\n", "\n\n", ""),
        ("one\ntwo\nthree", "one\ntwo\n", "\n", ""),
        ("one two three", "one two ", " ", ""),
        ("onetwothree", "onetwothree", "", ""),
        ("```py\nx = 1\ny = 2\nz", "```py\nx = 1\ny = 2\n", "\n", "```\n"),
        ("```py\nx = 1\n```\n", "```py\nx = 1\n```\n", "\n\n", ""),
    ],
)
def test_where_a_text_is_divided(source: str, before: str, joint: str, reopen: str) -> None:
    assert markdown.cut(source) == markdown.Cut(len(before), joint, reopen)


def test_code_without_a_fence_keeps_its_indentation() -> None:
    source = "def is_odd(n):\n    if n % 2:\n        return True\n    return False"
    assert markdown.render(f"Here it is:\n{source}").plain.endswith(source)


def test_markdown_is_drawn() -> None:
    source = "# Title\none\ntwo **bold** `code`\n\n1. a\n3. b\n   - c\n\n> said\n\n```py\nx = 1\n```\n\n---"
    assert markdown.render(source).plain == (
        "Title\n\none\ntwo bold `code`\n\n 1. a\n 3. b\n     ◦ c\n\n│ said\n\n▏ py\n▏ x = 1\n\n" + "─" * 24
    )


@pytest.mark.parametrize("mark", ["> ", "- ", "1. ", "*"])
@pytest.mark.parametrize("times", [15, 19, 20, 21, 40, 500])
def test_deep_nesting_is_shown(mark: str, times: int) -> None:
    assert "deep" in markdown.render(mark * times + "deep").plain


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0%"), (0.00001, "<0.01%"), (0.0003, "0.03%"), (0.034, "3.4%"), (0.12, "12%"), (1, "100%")],
)
def test_percent(share: float, shown: str) -> None:
    assert percent(share) == shown


def test_numbers_are_drawn() -> None:
    assert bar(0.5, 4) == "██  "
    assert bar(1e-9, 2) == "▏ "
    assert bar(2, 2) == "██"
    assert gauge(0.33, 12) == "▕██▋     ▏  4 of 12 heads"
    assert gauge(1, 12) == "▕████████▏ 12 of 12 heads"
    assert gauge(0.01, 12) == "▕▏       ▏ <1 of 12 heads"
    assert spark([0, 0.5, 1]) == "▁▅█"
    assert spark([0, 0]) == "▁▁"
    assert [size(n) for n in (96, 1536, 256 * 2**20, 3 * 2**40)] == ["96 B", "1.5 KiB", "256 MiB", "3.0 TiB"]
    assert [short(n) for n in (947, 1947, 20_100, 999_600, 1_200_000)] == [
        "947",
        "1.9k",
        "20k",
        "1.0M",
        "1.2M",
    ]


def _letters(text: str) -> str:
    return "".join(c for c in text if c.isalnum())
