"""The study file: what is right is read, what is wrong is named with its line and what would be right."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.core.study_file import ModelChoice, TaskChoice, shipped
from lesion.errors import UsageError
from lesion.plain import unruly
from lesion.registry import load_study
from lesion.studies.ablation.study import Study
from lesion.studies.truncation.study import TruncationStudy

FULL = """
name = "everything"
title = "What is there?"
models = [
  "bundled:llama-base",
  {source = "Qwen/Qwen2.5-7B", revision = "main", dtype = "float16", prompt_style = "chat"},
]
items = 50
seed = 7
level = 0.9
batch_size = 16
dtype = "bfloat16"
device = "cuda:1"
prompt_style = "plain"

[[tasks]]
name = "gsm8k"
items = "all"
max_new_tokens = 300
prompt_style = "raw"
stop = ["\\n\\n", "Q:"]

[[tasks]]
name = "primer:atlas"
stop = "\\n"

[edits]
unit = ["block", "mlp"]
layers = "7, 0-2,3"
factor = [0, 0.5]

[decoding]
temperature = 0.7
top_p = 0.9
max_new_tokens = 64
"""


def test_every_key_arrives():
    study = Study.parse(FULL)
    assert (study.name, study.title, study.items, study.seed, study.level) == (
        "everything",
        "What is there?",
        50,
        7,
        0.9,
    )
    assert (study.batch_size, study.dtype, study.device) == (16, "bfloat16", "cuda:1")
    assert study.models == (
        ModelChoice(source="bundled:llama-base"),
        ModelChoice(source="Qwen/Qwen2.5-7B", revision="main", dtype="float16", prompt_style="chat"),
    )
    assert study.tasks[0] == TaskChoice(
        name="gsm8k", items="all", max_new_tokens=300, prompt_style="raw", stop=("\n\n", "Q:")
    )
    assert study.tasks[1].stop == ("\n",)
    assert (study.edits.unit, study.edits.layers, study.edits.factor) == (("block", "mlp"), "0-3,7", (0.0, 0.5))
    assert (study.decoding.temperature, study.decoding.top_p, study.decoding.max_new_tokens) == (0.7, 0.9, 64)


def test_two_names_are_enough_and_the_defaults_are_the_papers_ablation():
    study = Study.make(models="m", tasks="t")
    assert (study.items, study.seed, study.level, study.batch_size) == (100, 0, 0.95, "auto")
    assert (study.edits.unit, study.edits.layers, study.edits.factor) == (("block",), "all", (0.0,))
    assert study.decoding.temperature == 0


def test_a_study_that_changes_nothing_is_refused_and_a_factor_of_1_among_others_is_not():
    study = {"models": ["bundled:llama-base"], "tasks": ["primer:atlas"]}
    for factor in (1, 1.0, [1]):
        with pytest.raises(UsageError, match="factor=1 changes nothing"):
            Study.make(**study, edits={"factor": factor})
    assert Study.make(**study, edits={"factor": [0, 1]}).edits.factor == (0, 1)
    assert Study.make(**study, edits={"factor": 1, "replace": ["mean"]}).edits.kinds == ("mean",)


def test_a_task_overrides_a_model_and_a_model_the_study():
    study = Study.parse(FULL)
    plain, chat = study.models
    gsm8k, atlas = study.tasks
    assert study.prompt_style_of(chat, gsm8k) == "raw"
    assert study.prompt_style_of(chat, atlas) == "chat"
    assert study.prompt_style_of(plain, atlas) == "plain"
    assert [study.items_of(task) for task in study.tasks] == [None, 50]
    assert [study.max_new_tokens_of(task) for task in study.tasks] == [300, 64]
    assert [study.dtype_of(model) for model in study.models] == ["bfloat16", "float16"]
    assert [model.name for model in study.models] == ["bundled:llama-base", "Qwen/Qwen2.5-7B@main (float16)"]
    bare = Study.make(models="m", tasks="t")
    assert bare.prompt_style_of(bare.models[0], bare.tasks[0]) is None
    assert bare.max_new_tokens_of(bare.tasks[0]) is None


def test_the_full_study_survives_writing_and_reading():
    study = Study.parse(FULL)
    assert Study.parse(study.to_toml()) == study
    assert tomllib.loads(study.to_toml())["edits"]["layers"] == "0-3,7"


@pytest.mark.parametrize(
    "more",
    [
        {"stop": {}},
        {"stop": {"effect": 0.3, "level": 0.01}},
        {"screen": True},
        {"stop": {"effect": 0.3}, "screen": True},
    ],
)
def test_stopping_and_screening_are_no_part_of_what_a_study_is_and_are_written_with_it(more):
    plain, study = Study.make(models="m", tasks="t"), Study.make(models="m", tasks="t", **more)
    assert study.identity() == plain.identity()
    assert Study.parse(study.to_toml()) == study != plain


def test_a_study_that_says_it_has_no_screen_has_none():
    assert Study.make(models="m", tasks="t", screen=False) == Study.make(models="m", tasks="t")
    with pytest.raises(UsageError, match='screen must be true or false, not "yes"'):
        Study.make(models="m", tasks="t", screen="yes")


@pytest.mark.parametrize("level", [0.05, 0.95])
def test_the_level_of_a_stopped_study_is_the_share_of_errors_or_that_of_the_intervals(level):
    study = Study.from_options(models="m", task="t", stop_when="decided", effect=0.2, level=level)
    assert (study.stop.effect, study.stop.level, study.level) == (0.2, pytest.approx(0.05), pytest.approx(0.95))
    with pytest.raises(UsageError, match="--stop-when decided"):
        Study.from_options(models="m", task="t", effect=0.2)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = TEXTS.filter(lambda text: not unruly(text))
FACTORS = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=3, unique=True).filter(
    lambda factors: factors != [1.0]  # which changes nothing
)


@given(
    name=NAMES,
    models=st.lists(NAMES, min_size=1, max_size=3, unique=True),
    tasks=st.lists(NAMES, min_size=1, max_size=3, unique=True),
    stop=st.none() | st.lists(TEXTS, max_size=3, unique=True),
    factor=FACTORS,
    layers=st.just("all") | st.lists(st.integers(0, 99), min_size=1, max_size=5),
    items=st.integers(1, 10**7) | st.just("all"),
)
def test_any_study_survives_writing_and_reading(name, models, tasks, stop, factor, layers, items):
    study = Study.make(
        name=name,
        models=models,
        tasks=[{"name": tasks[0], "stop": stop}, *tasks[1:]],
        items=items,
        edits={"factor": factor, "layers": layers},
    )
    again = Study.parse(study.to_toml())
    assert again == study
    assert again.identity() == study.identity()


BASE: dict[str, object] = {"models": ["a", "b"], "tasks": ["t", "u"]}


@pytest.mark.parametrize(
    "change",
    [
        {"models": ["a"]}, {"models": ["a", {"source": "b", "revision": "x"}]},
        {"models": ["a", {"source": "b", "prompt_style": "chat"}]}, {"tasks": ["t"]},
        {"tasks": ["t", {"name": "u", "items": 3}]}, {"tasks": ["t", {"name": "u", "stop": "."}]}, {"items": 101},
        {"seed": 1}, {"dtype": "float32"}, {"prompt_style": "chat"}, {"edits": {"unit": "mlp"}},
        {"edits": {"layers": "0-3"}}, {"edits": {"factor": 0.5}}, {"decoding": {"temperature": 1.0}},
        {"decoding": {"max_new_tokens": 9}}, {"decoding": {"stop_loops": 4}},
    ],
)  # fmt: skip
def test_the_identity_changes_with_what_determines_the_answers(change):
    assert Study.make(**(BASE | change)).identity() != Study.make(**BASE).identity()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"title": "other"},
        {"level": 0.5},
        {"batch_size": 3},
        {"device": "cpu"},
        {"models": ["b", {"source": "a"}]},
        {"models": ["a", {"source": "b", "family": "letters", "variant": "instruct", "parent": "c"}]},
        {"tasks": ["u", "t"]},
        {"items": 100, "seed": 0},
        {"edits": {"factor": -0.0, "unit": ["block"]}},
    ],
)
def test_the_identity_does_not_change_with_what_does_not(change):
    assert Study.make(**(BASE | change)).identity() == Study.make(**BASE).identity()


def test_a_model_alone_in_its_study_may_be_labelled_too_without_becoming_another():
    plain = TruncationStudy.make(model="a", tasks=["t"])
    labelled = TruncationStudy.make(model={"source": "a", "family": "letters"}, tasks=["t"])
    assert labelled.identity() == plain.identity()
    assert TruncationStudy.make(model={"source": "a", "dtype": "float16"}, tasks=["t"]).identity() != plain.identity()


@pytest.mark.parametrize(
    ("choice", "lineage"),
    [
        ({"source": "bundled:llama-rlvr"}, ("llama", "rlvr")),
        ({"source": "bundled:qwen2-base@step23"}, ("qwen2", "base")),
        ({"source": "bundled:two-words-distill"}, ("two-words", "distill")),
        ({"source": "bundled:llama-base", "family": "other"}, ("other", "base")),
        ({"source": "bundled:llama-base", "variant": "parent"}, ("llama", "parent")),
        ({"source": "bundled:llama-large"}, (None, None)),
        ({"source": "llama-base"}, (None, None)),
        ({"source": "owner/model", "family": "f", "variant": "long chains"}, ("f", "long chains")),
    ],
)
def test_the_names_of_bundled_models_tell_family_and_variant_and_labels_go_before(choice, lineage):
    assert ModelChoice(**choice).lineage == lineage


def test_the_same_layers_written_otherwise_are_the_same_study():
    identities = {
        Study.make(**BASE, edits={"layers": layers}).identity() for layers in ("0-3,7", "7,3,0-2", [7, 0, 1, 2, 3])
    }
    assert len(identities) == 1


def _message(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        Study.parse(text, "f.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = 'a'\nitmes = 3\ntasks = 't'", "f.toml, line 2: there is no key 'itmes' (nearest: items)."),
        (
            "models = [\n 'a',\n {source = 'b', revison = 'x'},\n]\ntasks = 't'",
            "f.toml, line 3: there is no key 'revison' (nearest: revision).",
        ),
        (
            "models = 'a'\ntasks = 't'\n[edits]\nitems = 3",
            "f.toml, line 4: there is no key 'items' in this table: it belongs above the first [table].",
        ),
        (
            "models = 'a'\nlayers = '0-3'\ntasks = 't'",
            "f.toml, line 2: there is no key 'layers' here: it belongs in [edits].",
        ),
        ("models = 'a'", "f.toml: tasks is missing; give a list of at least one task: strings, or tables with a name."),
        (
            "models = 'a'\n[[tasks]]\nname = 't'\n[[tasks]]\nitems = 3",
            "f.toml, line 4: tasks.name is missing; give the name of a task, for example gsm8k or primer:atlas.",
        ),
        ("models = 'a'\ntasks = 't'\nitems = 0", "f.toml, line 3: items must be a whole number from 1, or all, not 0."),
        (
            "models = 'a'\ntasks = 't'\nitems = true",
            "f.toml, line 3: items must be a whole number from 1, or all, not true.",
        ),
        ("models = 'a'\ntasks = 't'\nseed = 1.5", "f.toml, line 3: seed must be a whole number from 0, not 1.5."),
        (
            "models = 'a'\ntasks = 't'\nlevel = 95",
            "f.toml, line 3: level must be a number between 0 and 1, for example 0.95, not 95.",
        ),
        (
            "models = 'a'\ntasks = 't'\ndtype = 'int4'",
            'f.toml, line 3: dtype must be auto, float32, bfloat16 or float16, not "int4".',
        ),
        (
            "models = 'a'\ntasks = 't'\n[edits]\nunit = ['block',\n 'mpl']",
            "f.toml, line 5: edits.unit must be block, attention, mlp, head, group, neuron, expert or matrix, or a list"
            ' of these, not "mpl".',
        ),
        (
            "models = 'a'\ntasks = 't'\nedits.factor = inf",
            "f.toml, line 3: edits.factor must be a finite number, or a list of them, not Infinity.",
        ),
        (
            "models = 'a'\ntasks = 't'\n[edits]\nlayers = '3-1'",
            "f.toml, line 4: edits.layers: The range 3-1 runs backwards; write 1-3.",
        ),
        (
            "models = 'a'\ntasks = 't'\n[decoding]\ntop_p = 0",
            "f.toml, line 4: decoding.top_p must be a number above 0 and at most 1, not 0.",
        ),
        (
            "models = 'a'\ntasks = 't'\n[decoding]\nstop_loops = 1",
            "f.toml, line 4: decoding.stop_loops must be a whole number from 2, or 0 to let loops go on, not 1.",
        ),
        ("models = ['a', 'a']\ntasks = 't'", "f.toml, line 1: models: a is listed twice; list it once."),
        ("models = 'a'\ntasks = 't'\nedits = 3", "f.toml, line 3: edits must be a table [edits], not 3."),
        (
            "models = []\ntasks = 't'",
            "f.toml, line 1: models must be a list of at least one model: strings, or tables with a source, not [].",
        ),
    ],
)
def test_a_fault_is_told_with_its_line_and_what_would_be_right(text, message):
    assert _message(text) == message


def test_all_faults_are_told_at_once_in_the_order_of_the_file():
    lines = _message("[decoding]\ntemperature = -1\n[edits]\nunit = 'neurons'\nlayers = 'x'\nfactr = 1\n").split("\n")
    assert lines[0] == "f.toml has 6 faults:"
    assert [line.split(":")[0].strip() for line in lines[3:]] == ["line 2", "line 4", "line 5", "line 6"]
    assert "tasks is missing" in lines[1]
    assert "models is missing" in lines[2]


def test_an_unknown_key_with_nothing_near_gets_the_list_of_keys():
    assert "'zzz'; valid here: temperature, top_p, max_new_tokens" in _message(
        "models = 'a'\ntasks = 't'\n[decoding]\nzzz = 1"
    )


def test_a_file_is_loaded_and_named_after_itself(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xef\xbb\xbf" + "models = 'm'\r\ntasks = 'τ'\r\n".encode())
    study = Study.load(file)
    assert (study.name, study.tasks[0].name) == ("mine", "τ")
    file.write_text("models = 'm'\ntasks = 't'\nname = 'own'\n")
    assert Study.load(str(file)).name == "own"


@pytest.mark.parametrize("name", list(shipped()))
def test_every_shipped_study_loads_by_its_name_and_survives_writing(name):
    study = load_study(name)
    assert study.name == name
    assert study.title
    assert type(study).parse(study.to_toml()) == study


def test_contributions_are_replaced_on_transformers_alone():
    with pytest.raises(UsageError, match="contributions are replaced on transformers only"):
        Study.make(models=["bundled:llama-base"], tasks=["primer:atlas"], engine="vllm", edits={"replace": ["mean"]})
