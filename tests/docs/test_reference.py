"""The generated reference pages hold every command, option, key and public name, and say nothing by hand."""

import re
import sys
from pathlib import Path

import pytest

import lesion
from lesion.core.options import options_of
from lesion.registry import methods
from lesion.report.rows import Row, columns_of
from lesion.tasks.catalogue import NAMES

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))

import reference  # noqa: E402


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.pages()


def test_every_command_is_listed_with_every_option(pages):
    text = pages["reference/commands.md"]
    for method in methods().values():
        if not method.command:
            continue
        section = text.split(f"## lesion {method.command}\n")[1].split("\n## ")[0]
        for option in options_of(method.study):
            assert f"| `{option.argument or option.flag}` |" in section
    for command in ("demo", "show", "apply", "run", "report", "edit show", "lab lineage"):
        assert f"## lesion {command}\n" in text


def test_every_key_of_study_files_is_listed(pages):
    text = pages["reference/study-files.md"]
    for method in methods().values():
        for key in method.study.model_fields:
            if key != "kind" or method.kind is not None:
                assert re.search(rf"\| \**`{key}`", text), key


def test_every_public_name_is_listed_once(pages):
    headings = re.findall(r"heading: lesion\.(\w+)", pages["reference/python.md"])
    assert sorted(headings) == sorted(lesion.__all__)


def test_fields_of_results_have_their_meaning(pages):
    text = pages["reference/results.md"]
    assert re.search(
        r"\| `drop` \| `Estimate` \| [^|]*\| baseline accuracy minus that under the edit, on the same", text
    )
    assert text.count("### `Estimate`") == 1


def test_every_column_of_a_table_is_listed_with_its_heading(pages):
    text = pages["reference/results.md"]
    assert "| `beyond` | `Estimate` | `beyond`, `beyond_low`, `beyond_high`, `beyond_p`, `beyond_p_corrected`" in text
    for row in reference._rows(Row):
        if row.__module__.startswith("lesion.studies."):
            for shown in columns_of(row):
                assert re.search(rf"\| `{shown.name}` \|[^\n]*`{re.escape(shown.key)}`", text), (row, shown.name)


def test_a_rule_says_in_its_docstring_what_it_can_say_and_what_it_needs():
    def some_block_matters():
        """Which block matters.

        Says: Block L matters. | No block is
        shown to matter.
        Needs: a drop
        """

    read = reference.Rule.of(some_block_matters)
    assert read.says == ("Block L matters.", "No block is shown to matter.")
    assert (read.about, read.needs) == ("Which block matters.", "a drop")


def test_every_claim_is_listed_with_its_outcomes_and_what_it_needs(pages):
    text = pages["explanation/claims.md"]
    listed = [each for own in reference.rules().values() for each in own]
    assert {each.module.split(".")[2] for each in listed} >= {"ablation", "interaction", "overlay", "patching"}
    for each in listed:
        assert each.about, each
        assert each.needs, each
        assert each.says, each
        assert len(set(each.says)) == len(each.says), each
        line = next(line for line in text.splitlines() if reference._cell(reference._escaped(each.needs)) in line)
        assert (
            all(reference._cell(reference._outcome(said)) in line for said in each.says) or text.count(each.needs) > 1
        )


def test_every_task_says_at_which_size_it_is_informative_and_how_that_is_known(pages):
    rows = [line for line in pages["reference/tasks.md"].splitlines() if line.startswith("| `")]
    assert [re.match(r"\| `([^`]+)`", row)[1] for row in rows] == [*NAMES, "harness:NAME"]
    for row in rows:
        *_, size, by, evidence = row.strip("| ").split(" | ")
        assert by in ("measured", "published", "expected")
        assert size
        assert evidence
        assert by != "measured" or re.search(r"\[\d+\.\d, \d+\.\d\]", evidence), row


def test_every_architecture_of_the_table_has_a_tiny_model(pages):
    rows = [line for line in pages["reference/architectures.md"].splitlines() if line.startswith("| `")]
    assert len(rows) >= 13
    assert all(re.match(r"\| `\w+` \| `\w+`.* \| `\w+(ForCausalLM|LMHeadModel)` \|", row) for row in rows)
