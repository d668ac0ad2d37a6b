"""A study of every kind, interrupted and continued, gives the numbers that were recorded.

`python tests/golden/record.py` writes the record anew; do that only where a number is meant to change, and say why. On
another processor the last digits differ. So floats are compared to rounding, and digests over such floats are not
compared: those of selections and means, and of the keys of answers under them or of tuned or noisy models.
`LESION_GOLDEN=exact` compares everything to the last digit, as holds on one machine.
"""

import atexit
import functools
import html
import itertools
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chromium
import pytest
from page_checks import HOSTILE, Elements, assert_asks_for_nothing

import golden
from commandline import coarse_figures, lesion, undrawn
from lesion.cli.terminal import Bar
from lesion.core.result import StudyResult
from lesion.core.values import Summary
from lesion.registry import recall
from lesion.report.names import names_in
from lesion.report.publishing import html as page_html

EXACT = os.environ.get("LESION_GOLDEN") == "exact"
RELATIVE, ABSOLUTE = 1e-4, 1e-5
LOOSE = {"patching": 0.02, "heads": 0.001}
"""Relative tolerance of a folder where some numbers are little but rounding: p of heads that do next to nothing."""
KEYS = re.compile(r"/(isolation|evaluate|tuning|kinds|heads|family)/keys")
"""Digests of keys that name selections, means, tuned or noisy models."""
DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")
"""The digest of a selection, alone or in the text form of an edit."""


def differences(value: Any, recorded: Any, place: str = "") -> list[str]:
    """Where a value is not the recorded one, with both."""
    if isinstance(value, dict) and isinstance(recorded, dict):
        further = (
            set() if "/tables" in f"{place}/" else value.keys() - recorded.keys()
        )  # tables and columns may be added
        parts = [f"{place}/{key}: only in one" for key in sorted(further | (recorded.keys() - value.keys()))]
        return parts + [
            part
            for key in sorted(value.keys() & recorded.keys())
            for part in differences(value[key], recorded[key], f"{place}/{key}")
        ]
    if isinstance(value, list) and isinstance(recorded, list) and len(value) == len(recorded):
        return [
            part
            for index, (mine, theirs) in enumerate(zip(value, recorded, strict=True))
            for part in differences(mine, theirs, f"{place}/{index}")
        ]
    if not EXACT and isinstance(value, str) and isinstance(recorded, str):
        if KEYS.fullmatch(place):
            return []
        if not place.endswith("/fingerprint"):  # that of a model's own weights is exact
            value, recorded = DIGEST.sub("digest", value), DIGEST.sub("digest", recorded)
    numbers = isinstance(value, float) and isinstance(recorded, float)
    relative = LOOSE.get(place.partition("/")[2].partition("/")[0], RELATIVE)
    same = math.isclose(value, recorded, rel_tol=relative, abs_tol=ABSOLUTE) if numbers else value == recorded
    if (same and not EXACT) or value == recorded or (numbers and math.isnan(value) and math.isnan(recorded)):
        return []
    return [f"{place}: {value!r}, recorded {recorded!r}"]


def text_of(markup: str) -> str:
    """What a reader sees of HTML or of a terminal's lines: no tags, every run of spaces one."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


PAGES = {"layers", "truncation", "overlay", "comparison", "effects", "family", "interaction", "patching", "isolation"}
PAGES |= {"drift", "tuning", "recall", "memory"}
"""Folders of which the page is looked at: one of every kind of study."""


@pytest.mark.slow
@pytest.mark.parametrize("name", golden.CHAINS)
def test_a_study_interrupted_and_continued_gives_the_recorded_numbers_and_is_then_only_read_and_shown(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = json.loads(golden.record_file(name).read_text(encoding="utf-8"))
    done = golden.run_chain(name, tmp_path)
    apart = differences(done, recorded)
    assert not apart, "\n".join(apart[:40])
    monkeypatch.chdir(tmp_path)
    works: list[str] = []
    monkeypatch.setattr(Bar, "begin", lambda self, model, total, stored, what="answers": works.append(what))
    # Weights are selected anew from the sums that are there.
    monkeypatch.setattr(Bar, "answered", lambda *_: works[-1].startswith("matrices ") or pytest.fail(f"{works}: again"))
    for folder in golden.CHAINS[name]:
        page, summary = tmp_path / folder / "report.html", tmp_path / folder / "summary.json"
        if not page.is_file():  # models made for other studies have no report
            continue
        numbers, markup = summary.read_text(encoding="utf-8"), None
        if folder in PAGES:
            again = lesion(capsys, *golden.command(name, folder, tmp_path), drawn=True)
            assert again.code == 0, again.err
            assert summary.read_text(encoding="utf-8") == numbers, folder
            markup = page.read_text(encoding="utf-8")
        terminal = lesion(capsys, "report", tmp_path / folder, drawn=folder in PAGES).out
        result = recall(tmp_path / folder)
        assert result.summary.text() == numbers, folder
        with coarse_figures():
            said_alike(result, page.read_text(encoding="utf-8"), terminal, folder)
        if markup is not None:
            assert page.read_text(encoding="utf-8") == markup, f"{folder}: what a run writes and what a folder gives"
            is_sound(result, markup)
            if chromium.found():
                in_a_browser(page.as_uri())


def is_sound(result: StudyResult, markup: str) -> None:
    """A page asks for nothing, its links lead somewhere, and texts of others stay texts."""
    elements = assert_asks_for_nothing(markup).found
    links = {link["href"][1:] for tag, link in elements if tag == "a" and link["href"][0] == "#"}
    assert links <= {part.get("id") for _, part in elements}
    hostile_names_stay_texts(result, markup)


def hostile_names_stay_texts(result: StudyResult, markup: str) -> None:
    """Texts that look like markup add no element and no attribute to a page: notes, titles, tokens, models and tasks.

    Answers lie under the names of models and tasks; what a page with answers makes of hostile names and answers is
    tested in a browser, by `studies/ablation/test_in_chromium.py`.
    """
    full = dict.fromkeys(name for name in names_in(result.summary) if ":" in name)
    tame = {} if 'id="choose-task"' in markup else {name: f"tame{number}" for number, name in enumerate(full)}
    hostile = dict(zip(tame, itertools.cycle(f"{number}{text}" for number, text in enumerate(TEXTS)), strict=False))
    pages = {}
    with undrawn():  # what names become in a chart has a test of its own
        for kind, names, text in (("tame", tame, "tame"), ("hostile", hostile, TEXTS[1])):
            pages[kind] = Elements(page_html(type(result)(result.folder, renamed(result.summary, names, text)).page()))
    shapes = {kind: {(tag, *sorted(attributes)) for tag, attributes in page.found} for kind, page in pages.items()}
    assert shapes["hostile"] <= shapes["tame"]
    assert not {tag for tag, *_ in shapes["hostile"]} & {"img", "iframe", "object", "embed", "base"}
    assert len(pages["hostile"].inside["script"]) == len(pages["tame"].inside["script"])


TEXTS = [text.replace("\ud800", "\ufffd") for text in HOSTILE]
FREE = {"title", "notes", "token", "before", "after", "item", "prompt", "question", "version"}
"""Keys of texts of which nothing depends."""


def renamed(summary: Summary, names: Mapping[str, str], text: str) -> Summary:
    """A summary with other names of models and tasks, and one text in place of all that is free."""

    def other(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {names.get(name, name): other(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [other(part, key) for part in value]
        if isinstance(value, str):
            return text if key in FREE else names.get(value, value)
        return value

    return type(summary).model_validate(other(summary.model_dump(mode="json")))


def said_alike(result: StudyResult, page: str, terminal: str, folder: str) -> None:
    """The first sentence is short, and the same on the page, on the terminal and in a notebook."""
    first = text_of(html.escape(result.verdict))
    assert len(re.sub(r"\s*\[[^]]*\]", "", first).split()) <= 25, f"{folder}: {first}"
    begin = first.rstrip(".")  # a page may go on behind the subject
    assert begin in text_of(page), f"{folder}: page"
    assert text_of(html.escape(terminal)).startswith(begin), f"{folder}: terminal: {terminal[:200]}"
    assert begin in text_of(result._repr_html_()), f"{folder}: notebook"


@functools.cache
def tab() -> chromium.Chromium:
    """One browser for all pages."""
    opened = chromium.Chromium()
    atexit.register(opened.__exit__, None, None, None)
    return opened


def in_a_browser(address: str) -> None:
    """A page runs without complaint or request, sorts its tables by number, and is never wider than a phone."""
    chromium.assert_quiet(tab(), address)
    tab().ask("document.querySelectorAll('details').forEach(part => { part.open = true })")
    chromium.assert_tables_sort_by_number(tab())
    with tab().shown(width=390, height=800):
        assert tab().ask("document.documentElement.scrollWidth") == 390
    assert tab().complaints == []
