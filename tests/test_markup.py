"""What a notebook shows of models and results: escaped, without a request, in colours of its own."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import lesion
from lesion import markup
from lesion.report import theme
from tiny import model

NASTY = "<script>alert(1)</script>&\x1b[31m\u202e"


@pytest.fixture(scope="module")
def tiny_model():
    return replace(model("llama"), name=NASTY)


def refuse_what_acts(html: str) -> None:
    ElementTree.fromstring(html.replace("<br>", "<br/>"))  # every tag is closed
    assert "<script" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert not re.search(r"""(?:src|href)=["'](?!#)|url\((?!#)|@import|\son\w+=|<(?:img|link|iframe|object)""", html)
    assert "var(--" not in html


def test_the_colours_are_the_light_ones_of_the_report():
    assert [theme.light()[name] for name in ("paper", "ink", "soft", "line")] == [
        markup.PAPER,
        markup.INK,
        markup.SOFT,
        markup.RULE,
    ]


def test_a_model_shows_what_the_command_shows(tiny_model):
    html = tiny_model._repr_html_()
    refuse_what_acts(html)
    for text in ("LlamaForCausalLM, family llama", tiny_model.fingerprint, "float32", "attention.q 32 × 32"):
        assert text in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_a_result_shows_verdict_chart_and_a_few_rows(tiny_model, tmp_path):
    file = tmp_path / "made <b>here.jsonl"
    file.write_text('{"prompt": "<b>2 + 2</b> =", "answer": "4", "judge": "contains"}\n')
    factors = [0.0, 0.25, 0.5, 0.75, 0.9, 1.1]
    result = lesion.ablate(tiny_model, str(file), layers="all", max_new_tokens=2, factor=factors)
    assert len(result.table_full) > 12
    html = result._repr_html_()
    refuse_what_acts(html)
    assert "made &lt;b&gt;here" in html
    assert html.count("<svg") == 1
    assert html.count("<tr>") == 1 + 12
    assert f"and {len(result.table_full) - 12} rows more" in html
    first = markup.seen(result.verdict)
    assert first in html


def test_a_result_whose_folder_is_gone_still_shows_its_numbers(tiny_model, tmp_path):
    result = lesion.ablate(replace(tiny_model, name="m"), "primer:atlas", items=2, layers=[0], max_new_tokens=1)
    gone = replace(result, folder=tmp_path / "gone", stored=None)
    html = gone._repr_html_()
    assert "<svg" not in html
    assert "primer:atlas" in html
