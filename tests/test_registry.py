"""Which kind of study a file is."""

import json
import sys
import tomllib
from functools import cache
from types import SimpleNamespace
from typing import Literal

import jsonschema
import pytest
import typer

import lesion
from commandline import lesion as command
from commandline import refused
from lesion import registry
from lesion.cli import main
from lesion.core import study_file as study_files
from lesion.core.method import Method
from lesion.core.options import options_of
from lesion.core.result import StudyResult
from lesion.core.study_file import Questions, StudyFile, shipped
from lesion.core.values import Summary
from lesion.errors import UsageError
from lesion.outputs import kind_of, own
from lesion.registry import load_study
from lesion.report.blocks import Page
from lesion.studies.ablation.study import Study
from lesion.studies.isolation.study import IsolationStudy
from lesion.tasks.catalogue import draw, find

LAYERS = 'models = ["bundled:llama-base"]\ntasks = ["primer:atlas"]\n'
ISOLATION = (
    'kind = "isolation"\nmodel = "bundled:llama-base"\nskill = "primer:arithmetic"\ncontrols = ["primer:atlas"]\n'
)


def test_a_file_is_what_its_kind_says_and_without_one_a_layer_study(tmp_path):
    (tmp_path / "layers.toml").write_text(LAYERS)
    (tmp_path / "weights.toml").write_text(ISOLATION)
    assert isinstance(load_study(tmp_path / "layers.toml"), Study)
    found = load_study(str(tmp_path / "weights.toml"))
    assert isinstance(found, IsolationStudy)
    assert (found.name, found.skill) == ("weights", "primer:arithmetic")


@pytest.mark.parametrize("name", [name for name in shipped() if name.startswith("truncation-")])
def test_the_tasks_of_every_shipped_search_that_need_no_hub_have_as_many_items_as_it_asks(name):
    study = load_study(name)
    assert isinstance(study, Questions)
    for choice in study.tasks:
        assert len(draw(find(choice.name), study.items_of(choice), study.seed)) >= 10


def test_a_file_in_this_folder_goes_before_a_shipped_study_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text(ISOLATION)
    assert isinstance(load_study("demo"), IsolationStudy)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kind = "isolaton"\n' + LAYERS, "kind"),
        ("kind = \n", "not valid TOML"),
        ('kind = "layers"\n' + LAYERS, "a layer study has no kind; leave `kind` out"),
        (ISOLATION + "shar = 0.1\n", r"line 5.*shar.*share"),
        ('models = ["m"]\ntask = ["primer:arithmetic"]\n', 'no task; say kind = "drift", or write tasks for task'),
        (ISOLATION.replace('"primer:atlas"', '"primer:arithmetic"'), "cannot be its own control"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text, said, tmp_path):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(UsageError, match=rf"(?s){said}"):
        load_study(tmp_path / "s.toml")


def test_a_folder_in_this_folder_hides_no_shipped_study(tmp_path, monkeypatch):
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_study("demo").name == "demo"


class OtherStudy(StudyFile):
    """A study of a package from outside."""

    kind: Literal["other"] = "other"


class OtherResult(StudyResult):
    """Its result."""

    @classmethod
    def recall(cls, folder):
        return cls(folder, Summary(kind="other")) if (folder / "other.txt").exists() else None

    def page(self):
        return Page("Other", "other", ())

    @property
    def verdict(self):
        return "It runs."

    def text(self, *, every=False):
        return "what was found"


def run_other(study, run):
    run.folder.mkdir()
    (run.folder / "other.txt").write_text(study.name)
    return OtherResult(run.folder, Summary(kind="other"))


class TwinStudy(OtherStudy):
    """A study that calls itself as one of this package."""

    kind: Literal["drift"] = "drift"


OTHER = Method(OtherStudy, f"{__name__}:run_other", f"{__name__}:OtherResult", distributed=False)
TWIN = Method(TwinStudy, f"{__name__}:run_other", f"{__name__}:OtherResult")


def registered(monkeypatch, value):
    point = SimpleNamespace(name="other", group="lesion.studies", value="outside:METHOD", load=lambda: value())
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == "lesion.studies" else [])
    monkeypatch.setattr(main, "_command", cache(main._command.__wrapped__))


def test_a_method_from_outside_runs_from_python_and_command_and_is_recalled(monkeypatch, tmp_path, capsys):
    registered(monkeypatch, lambda: OTHER)
    (tmp_path / "s.toml").write_text('kind = "other"\nname = "far"\n')
    assert load_study(tmp_path / "s.toml") == OtherStudy(name="far")
    assert isinstance(lesion.study(tmp_path / "s.toml", tmp_path / "one"), OtherResult)
    done = command(capsys, "run", tmp_path / "s.toml", "--out", tmp_path / "two")
    assert done.code == 0, done.err
    assert done.out == f"It runs.\nwhat was found\nreport: {tmp_path / 'two' / 'report.html'}\n"
    assert command(capsys, "report", tmp_path / "two").out == done.out
    refused = command(capsys, "run", tmp_path / "s.toml", "--out", tmp_path / "three", "--workers", 2)
    assert (refused.code, "leave --workers and --ray out" in refused.complaint) == (2, True)
    refused = command(capsys, "run", tmp_path / "s.toml", "--out", tmp_path / "three", "--device-map", "auto")
    assert (refused.code, "loads no model of yours" in refused.complaint) == (2, True)


@pytest.mark.parametrize("value", [lambda: 1 / 0, object, lambda: TWIN], ids=["broken", "no method", "twin"])
def test_what_another_package_registers_wrongly_is_named_and_takes_nothing_else_with_it(
    monkeypatch, tmp_path, value, capsys
):
    registered(monkeypatch, value)
    (tmp_path / "s.toml").write_text('kind = "other"\n')
    with pytest.raises(UsageError, match=r"uninstall that package\.$"):
        load_study(tmp_path / "s.toml")
    assert load_study("demo").name == "demo"
    listing = command(capsys, "run", "--list")
    assert (listing.code, "uninstall that package" in listing.out) == (0, True)


def test_without_the_labs_their_commands_are_absent_and_the_others_work(monkeypatch, capsys):
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    monkeypatch.setattr(study_files, "entry_points", lambda group: [])
    monkeypatch.setattr(main, "_command", cache(main._command.__wrapped__))
    monkeypatch.setitem(sys.modules, "lesion_labs", None)
    assert "lab " not in command(capsys, "--help").out
    refused(command(capsys, "lab", "memory", "--out", "out"), 2, "No such command 'lab'")
    listing = command(capsys, "run", "--list")
    assert (listing.code, "recall-quick" in listing.out, "demo" in listing.out) == (0, False, True)
    assert all(hasattr(lesion, name) for name in lesion.__all__)


def test_a_typer_application_from_outside_is_a_group_of_commands_and_anything_else_is_named(monkeypatch, capsys):
    group = typer.Typer()
    group.command("wave")(lambda: print("a hand"))
    group.command("rest")(lambda: None)
    points = [
        SimpleNamespace(name=name, group="lesion.commands", value=f"outside:{name}", load=lambda value=value: value)
        for name, value in (("hello", group), ("broken", 5))
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "lesion.commands" else [])
    monkeypatch.setattr(main, "_command", cache(main._command.__wrapped__))
    assert command(capsys, "hello", "wave").out == "a hand\n"
    assert (
        "command 'broken' of another package (outside:broken) is no typer.Typer" in command(capsys, "run", "--list").out
    )


def test_the_folder_of_another_kind_is_no_folder_for_a_method_from_outside(monkeypatch, tmp_path, capsys):
    registered(monkeypatch, lambda: OTHER)
    (tmp_path / "s.toml").write_text('kind = "other"\nname = "far"\n')
    (tmp_path / "layers").mkdir()
    own(tmp_path / "layers", "layers")
    (tmp_path / "layers" / "answers.sqlite").touch()
    done = command(capsys, "run", tmp_path / "s.toml", "--out", tmp_path / "layers")
    assert (done.code, "belongs to `lesion ablate`" in done.complaint) == (2, True)
    assert command(capsys, "run", tmp_path / "s.toml", "--out", tmp_path / "far").code == 0
    assert kind_of(tmp_path / "far") == "other"


@pytest.fixture(scope="module")
def studies():
    return {name: load_study(name) for name in shipped()}


@pytest.mark.parametrize("kind", ["layers", "isolation", "truncation", "drift", "tuning", "patching", "recall"])
def test_the_schema_of_a_kind_admits_its_shipped_studies_and_describes_every_option(capsys, studies, kind):
    done = command(capsys, "run", "--schema", kind)
    schema = json.loads(done.out)
    method = next(method for method in registry.methods().values() if (method.kind or "layers") == kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    admitted = jsonschema.Draft202012Validator(schema)
    for name, study in studies.items():
        if type(study) is method.study:
            admitted.validate(json.loads(study.model_dump_json(by_alias=False, exclude_none=True)))
            admitted.validate(tomllib.loads(shipped()[name].read_text("utf-8")))
    for option in options_of(method.study):
        if len(option.path) == 1:
            assert option.help in schema["properties"][option.path[0]]["description"]


def test_a_shipped_study_is_shown_and_what_is_shown_runs_as_it(capsys, tmp_path):
    done = command(capsys, "run", "demo", "--show")
    (tmp_path / "copy.toml").write_text(done.out, encoding="utf-8")
    assert load_study(tmp_path / "copy.toml").identity() == load_study("demo").identity()
