"""The line under a study that says what to run next: a command that parses, and asks the same study otherwise."""

import shlex
from typing import Any

import pytest

import lesion
from commandline import lesion as run
from commandline import questions, save
from lesion.cli.commands import command
from lesion.cli.next_step import next_step
from lesion.cli.parsing import checked
from lesion.core.result import StudyResult
from lesion.core.values import Summary
from lesion.registry import methods
from lesion.report.blocks import Check


def read(line):
    """The study that a command line asks for, and the folder."""
    import typer

    words = shlex.split(line)[1:]
    method = next(each for each in methods().values() if each.command == words[0])
    seen = []
    application = typer.Typer()
    application.command()(checked(command(method, lambda _, study, out, choice, **rest: seen.append((study, out)))))
    typer.main.get_command(application).main(words[1:], standalone_mode=False)
    return seen[0]


LINES = (
    "ablate bundled:llama-base --task primer:arithmetic --task 'arithmetic:add?digits=2' --unit mlp --layers 0-3,7"
    " --factor 0,0.5 --items 7 --stop-when decided --stop-rule e-Holm --prompt-style plain --stop '\\n' --out 'a b'",
    "ablate bundled:llama-base@step1 bundled:qwen2-base --task primer:atlas --screen --replace mean --out o",
    "evaluate bundled:llama-base --task primer:atlas --edit 3x0 --edit '5.mlp.up top 0.1' --random-controls 0 --out o",
    "truncate bundled:llama-base --task primer:atlas --matrices mlp.up --keep 0.1,0.5 --screen 20 --compose --out o",
    "tune bundled:llama-base --task primer:atlas --layers critical --layers 0-1 --seed 0,1 --out o",
    "drift bundled:llama-base --task primer:atlas --runs 3 --clusters 5,50 --out o",
    "interact bundled:llama-base --task primer:atlas --factor 0.5 --layers 1-3 --temperature 0.7 --out o",
    "isolate bundled:llama-base --skill primer:atlas --control primer:reading --share 0.01,0.05 --out o",
)


class OfStudy(Summary):
    """The numbers of any study."""

    study: Any


class Result(StudyResult):
    """A result whose only check is given."""

    def checks(self):
        return self.given


@pytest.fixture
def result_of(tmp_path):
    def made(line, check):
        study, _ = read(f"lesion {line}")
        result = Result(tmp_path / "of a study", OfStudy.model_construct(study=study))
        object.__setattr__(result, "given", [Check("good", "Off floor and ceiling."), check])
        return result

    return made


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split()[0])
def test_the_step_is_the_same_study_with_the_options_of_its_check_into_the_same_folder(result_of, line, tmp_path):
    result = result_of(line, Check("open", "Another draw.", line.split()[0], "--level 0.8"))
    if "--stop-when" in line:  # where the level is that of stopping too
        result = result_of(line, Check("open", "The same.", "ablate", "--items 7"))
    study, out = read(next_step(result))
    assert out == tmp_path / "of a study"
    expected = result.summary.study if "--stop-when" in line else result.summary.study.model_copy(update={"level": 0.8})
    assert study == expected


def test_a_step_of_another_command_takes_over_models_tasks_and_how_they_are_asked(result_of):
    asked = "--task primer:atlas --prompt-style plain --max-new-tokens 40"
    line = f"drift bundled:llama-base@step1 {asked} --runs 3 --items 9 --out o"
    result = result_of(line, Check("open", "Losses.", "ablate"))
    expected = f"lesion ablate bundled:llama-base@step1 {asked}"
    assert sorted(shlex.split(next_step(result))) == sorted(shlex.split(expected))
    read(next_step(result))


def test_what_a_study_file_sets_for_its_tasks_is_kept_or_there_is_no_line(result_of):
    line = "ablate bundled:llama-base --task primer:atlas --task primer:arithmetic --items 50 --out o"
    result = result_of(line, Check("open", "Another draw.", "ablate", "--level 0.8"))
    study = result.summary.study

    def step_with(*settings):
        tasks = tuple(choice.model_copy(update=of) for choice, of in zip(study.tasks, settings, strict=True))
        object.__setattr__(result, "summary", OfStudy.model_construct(study=study.model_copy(update={"tasks": tasks})))
        return next_step(result)

    assert read(step_with({"items": 7}, {"items": 7}))[0].items == 7
    # In the same folder what options say of all tasks would be another study than what was said of each.
    assert "--out" in step_with({"items": 7}, {"items": 7})
    of_all = step_with({"max_new_tokens": 7}, {"max_new_tokens": 7})
    assert "--max-new-tokens 7" in of_all
    assert "--out" not in of_all
    assert step_with({"items": 7}, {}) == ""
    assert step_with({"forbid": (2,)}, {"forbid": (2,)}) == ""


def test_what_a_study_of_one_task_sets_for_it_is_kept_too(result_of):
    result = result_of(
        "drift bundled:llama-base --task primer:atlas --out o", Check("open", "More.", "drift", "--runs 9")
    )
    study = result.summary.study
    one = study.model_copy(update={"task": study.task.model_copy(update={"max_new_tokens": 7})})
    object.__setattr__(result, "summary", OfStudy.model_construct(study=one))
    assert "--max-new-tokens 7" in next_step(result)


def test_without_a_check_that_names_a_step_there_is_no_line(result_of):
    assert next_step(result_of(LINES[0], Check("open", "No remedy."))) == ""


def test_a_study_on_the_command_line_ends_with_its_next_step_and_that_runs(capsys, tmp_path):
    words = ("--task", questions(tmp_path / "q.jsonl", 4), "--max-new-tokens", 1, "--layers", 0, "--items", 4)
    done = run(capsys, "ablate", save(tmp_path / "m"), *words, "--out", tmp_path / "o")
    assert done.code == 0, done.err
    last = done.out.splitlines()[-1]
    assert last.startswith("next: lesion ablate ")
    assert "--replace mean" in last
    again = run(capsys, *shlex.split(last.removeprefix("next: lesion ")))
    assert again.code == 0, again.err
    assert lesion.result(tmp_path / "o").summary.study.edits.kinds == ("mean",)
    assert not again.out.splitlines()[-1].startswith("next:")  # no block is critical to look into


def last_line(capsys, *words):
    done = run(capsys, *words)
    assert done.code == 0, done.err
    return done.out.splitlines()[-1]


def test_blocks_that_one_skill_needs_under_every_kind_of_ablation_are_tried_on_a_second_skill(capsys, tmp_path):
    words = ("bundled:llama-base", "--task", "primer:arithmetic", "--items", 12, "--layers", "2")
    last = last_line(capsys, "ablate", *words, "--replace", "mean", "--out", tmp_path / "o")
    study, out = read(last.removeprefix("next: "))
    assert out == tmp_path / "o"
    assert [task.name for task in study.tasks] == ["primer:arithmetic", "primer:atlas"]
    assert study.edits.kinds == ("mean",)


def test_the_range_that_costs_least_is_left_out_of_the_model(capsys, tmp_path):
    words = ("bundled:llama-base", "--task", "primer:atlas", "--items", 12, "--design", "windows")
    last = last_line(capsys, "interact", *words, "--out", tmp_path / "o")
    assert last.startswith("next: lesion apply bundled:llama-base --order ")
    interactions = lesion.result(tmp_path / "o").summary.interactions
    first, second = map(int, min(interactions, key=lambda each: each.together.value).places)
    assert run(capsys, *shlex.split(last.removeprefix("next: lesion "))).code == 0
    smaller = lesion.load(tmp_path / f"o-without-{first}-{second}")
    assert len(smaller.anatomy.blocks) == 6
    kept = [*range(first), *range(second + 1, 8)]
    whole = lesion.load("bundled:llama-base").network.model.layers
    for mine, theirs in zip(smaller.network.model.layers, (whole[block] for block in kept), strict=True):
        assert mine.mlp.up_proj.weight.equal(theirs.mlp.up_proj.weight)


def test_an_edit_tried_on_one_task_is_tried_on_a_second(capsys, tmp_path):
    words = ("bundled:llama-base", "--edit", "5x0", "--task", "primer:arithmetic", "--items", 12)
    last = last_line(capsys, "evaluate", *words, "--random-controls", 1, "--out", tmp_path / "o")
    study, _ = read(last.removeprefix("next: "))
    assert [task.name for task in study.tasks] == ["primer:arithmetic", "primer:atlas"]
    assert study.edits == ("5x0",)
