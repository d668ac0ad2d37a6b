"""The model `lesion` of lm-evaluation-harness gives what its own `hf` model gives on the network, edited or not."""

import copy
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import lesion
from harnesstasks import hushed, write_tasks
from lesion.edits.edit import BASELINE, Compose, ScaleBlock, ScaleMlp, Truncate
from lesion.errors import LesionError, UsageError

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: pip install 'lesion[harness]'")
pytestmark = pytest.mark.filterwarnings("ignore")

TASKS = ("local_gsm8k", "local_shots", "local_arc", "local_winogrande", "local_lambada", "local_wikitext")
CUT = Truncate("3.mlp.up", 0.05, "top")
EDITS = [BASELINE, Compose((ScaleBlock(0, 0.0), ScaleMlp(2, 0.5))), CUT]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("harness") / "tasks")


@pytest.fixture(scope="module")
def model():
    return lesion.load("bundled:llama-base")


def evaluated(lm, folder: Path, names=TASKS, **settings):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    with hushed():
        return simple_evaluate(model=lm, tasks=list(names), task_manager=manager, bootstrap_iters=0, **settings)


def harness_model(model, **settings):
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=model.network, tokenizer=copy.deepcopy(model.tokenizer), batch_size=4, **settings)


def replies(told) -> dict[tuple[str, str, int], list]:
    """What a model said, by task, filter and document."""
    return {
        (name, record["filter"], record["doc_id"]): [reply[0] for reply in record["resps"]]
        for name, records in told["samples"].items()
        for record in records
    }


def assert_alike(ours, theirs) -> None:
    one, other = replies(ours), replies(theirs)
    assert one.keys() == other.keys()
    for key, said in one.items():
        for mine, yours in zip(said, other[key], strict=True):
            if isinstance(mine, str):
                assert mine == yours, key
            elif isinstance(mine, float):
                assert mine == pytest.approx(yours, rel=1e-5), key
            else:
                assert mine[0] == pytest.approx(yours[0], rel=1e-4, abs=1e-5), key
                assert mine[1] == yours[1], key


def test_an_edit_that_the_harness_reads_as_a_number_is_refused_with_what_to_write(model):
    from lm_eval._cli.utils import key_val_to_dict

    from lesion.harness_model import LesionModel

    for typed in ("0x0", "0x1"):
        with pytest.raises(lesion.UsageError, match="write 0×0 or 0\\*0"):
            LesionModel(model, **key_val_to_dict(f"edit={typed}"))
    assert str(LesionModel(model, **key_val_to_dict("edit=0*0")).edit) == "0×0"


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_every_reply_is_that_of_the_harness_s_model_on_the_edited_network(model, folder, edit, tmp_path):
    from lesion.harness_model import LesionModel

    given = str(edit)
    if edit == CUT:
        given = str(lesion.save_edit(tmp_path / "cut.edit", edit, model))
    ours = evaluated(LesionModel(model, given), folder, limit=4)
    with lesion.applied(model, edit) if edit != BASELINE else nullcontext():
        theirs = evaluated(harness_model(model), folder, limit=4)
    assert_alike(ours, theirs)
    scores = {
        name: {key: value for key, value in numbers.items() if "stderr" not in key}
        for name, numbers in ours["results"].items()
    }
    for name, numbers in scores.items():
        for key, value in numbers.items():
            expected = theirs["results"][name][key]
            assert value == (pytest.approx(expected, rel=1e-4) if isinstance(value, float) else expected), (name, key)
    before = evaluated(LesionModel(model), folder, ("local_wikitext",))
    moved = [
        abs(mine[0] - said[0])
        for mine, said in zip(replies(before).values(), (replies(ours)[key] for key in replies(before)), strict=True)
    ]
    assert (min(moved) > 0.1) == (edit != BASELINE)


def test_settings_that_change_the_tokens_change_them_as_in_the_harness(model, folder):
    from lesion.harness_model import LesionModel

    for settings in ({"max_length": 300}, {"add_bos_token": False}):
        ours = evaluated(
            LesionModel(model, **settings), folder, ("local_shots", "local_arc", "local_wikitext"), limit=3
        )
        theirs = evaluated(
            harness_model(model, **settings), folder, ("local_shots", "local_arc", "local_wikitext"), limit=3
        )
        assert_alike(ours, theirs)


def test_conversations_are_written_as_in_the_harness(folder):
    from lesion.harness_model import LesionModel

    model = lesion.load("bundled:llama-instruct")
    settings = {"apply_chat_template": True, "fewshot_as_multiturn": True, "limit": 4}
    names = ("local_gsm8k", "local_arc")
    ours = evaluated(LesionModel(model), folder, names, system_instruction=None, **settings)
    theirs = evaluated(harness_model(model), folder, names, system_instruction=None, **settings)
    assert_alike(ours, theirs)
    prompts = [record["arguments"][0][0] for record in ours["samples"]["local_gsm8k"]]
    assert all(prompt.endswith("<|assistant|>") or "<|assistant|>" in prompt for prompt in prompts)


def test_a_template_that_refuses_a_system_message_is_asked_without_it(model):
    from lesion.harness_model import LesionModel

    lm = LesionModel(model)
    lm.tokenizer = copy.deepcopy(lm.tokenizer)
    lm.tokenizer.chat_template = (
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "[{{ m['content'] }}]{% endfor %}"
    )
    turns = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
    assert lm.apply_chat_template(turns) == harness_with(model, lm.tokenizer).apply_chat_template(turns) == "[hello]"


def harness_with(model, tokenizer):
    lm = harness_model(model)
    lm.tokenizer = tokenizer
    return lm


class Asked:
    """A request of the harness."""

    def __init__(self, *arguments) -> None:
        self.args = arguments


def test_replies_go_to_the_cache_of_the_harness(model):
    from lesion.harness_model import LesionModel

    lm, kept = LesionModel(model), []
    lm.cache_hook = type("Hook", (), {"add_partial": lambda _, *entry: kept.append(entry)})()
    (pair,) = lm.loglikelihood([Asked("Question:", " red")], disable_tqdm=True)
    (whole,) = lm.loglikelihood_rolling([Asked("Question: red")], disable_tqdm=True)
    (said,) = lm.generate_until([Asked("Question:", {"until": "\n", "max_gen_toks": 3})], disable_tqdm=True)
    assert kept == [
        ("loglikelihood", ("Question:", " red"), pair),
        ("loglikelihood_rolling", ("Question: red",), whole),
        ("generate_until", ("Question:", {"until": "\n", "max_gen_toks": 3}), said),
    ]
    nothing = lm.loglikelihood_rolling([Asked("")], disable_tqdm=True)
    assert nothing == pytest.approx(harness_model(model).loglikelihood_rolling([Asked("")]), rel=1e-6)


def test_a_question_that_is_asked_several_times_is_sampled_anew_and_again_the_same(model):
    from lesion.harness_model import LesionModel

    asked = [Asked("Question:", {"temperature": 1.5, "do_sample": True, "max_gen_toks": 12})] * 3
    first, again = (LesionModel(model, seed=3).generate_until(asked, disable_tqdm=True) for _ in range(2))
    assert first == again
    assert len(set(first)) == 3
    assert LesionModel(model, seed=77).generate_until(asked, disable_tqdm=True) != first


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"until": ["a", ""], "max_gen_toks": 7}, (("a",), 7, 0.0)),
        ({"until": "a", "max_new_tokens": 7, "do_sample": False, "temperature": 0.7}, (("a",), 7, 0.0)),
        ({"temperature": 0.7}, ((), 256, 0.7)),
        ({"do_sample": True}, ((), 256, 1.0)),
        ({"do_sample": False, "num_beams": 1}, ((), 256, 0.0)),
        ({"max_tokens": 3, "max_gen_toks": 4}, ((), 4, 0.0)),
    ],
)
def test_generation_settings_are_read_as_the_harness_means_them(settings, expected):
    from lesion.harness_model import decoding_of

    decoding = decoding_of(settings, 0)
    assert (decoding.stop, decoding.max_new_tokens, decoding.temperature) == expected


def test_what_cannot_be_meant_is_refused(model, tmp_path):
    from lesion.harness_model import LesionModel, decoding_of

    with pytest.raises(UsageError, match="Say which model: --model_args model="):
        LesionModel()
    with pytest.raises(UsageError, match=r"no argument 'edti' \(nearest: edit"):
        LesionModel(model, edti="3×0")
    with pytest.raises(UsageError, match=r"no file .*none\.edit"):
        LesionModel(model, str(tmp_path / "none.edit"))
    with pytest.raises(UsageError, match="'whatever' is not an edit; write ADDRESS×FACTOR"):
        LesionModel(model, "whatever")
    with pytest.raises(UsageError, match="blocks 0 to 7"):
        LesionModel(model, "99×0")
    with pytest.raises(UsageError, match=r"99"):
        LesionModel(model, "99.mlp.up top 0.1")
    with pytest.raises(UsageError, match="no engine 'vlm'"):
        LesionModel(model, engine="vlm")
    with pytest.raises(UsageError, match="a whole number or auto, not 'many'"):
        LesionModel(model, batch_size="many")
    with pytest.raises(UsageError, match="repetition_penalty is not known"):
        decoding_of({"repetition_penalty": 1.1}, 0)
    other = lesion.load("bundled:llama-instruct")
    file = lesion.save_edit(tmp_path / "of_another.edit", CUT, other)
    with pytest.raises(LesionError, match="has other weights"):
        LesionModel(model, file)


def test_arguments_of_the_model_come_before_those_of_the_command():
    from lesion.harness_model import LesionModel

    made = LesionModel.create_from_arg_obj(
        {"model": "bundled:llama-base", "batch_size": 3}, {"batch_size": 7, "device": "cuda:0", "max_batch_size": None}
    )
    assert made.engine.work.batch_size == 3
    made = LesionModel.create_from_arg_string("pretrained=bundled:llama-base,edit=2×0.5", {"batch_size": "auto:4"})
    assert made.edit == ScaleBlock(2, 0.5)
    made = LesionModel.create_from_arg_string("model=bundled:llama-base", {"batch_size": 1, "max_batch_size": 5})
    assert made.engine.work.batch_size == 5


# The thousands of tasks that the harness brings, which none of these is, take seconds to list.
ALONE = (
    "import functools; from lm_eval.tasks import TaskManager; "
    "TaskManager.__init__ = functools.partialmethod(TaskManager.__init__, include_defaults=False); "
    "import runpy; runpy.run_module('lesion.harness_model', run_name='__main__')"
)


@pytest.mark.slow
def test_the_real_command_gives_what_the_harness_s_model_gives(model, folder, tmp_path):
    names = ("local_gsm8k", "local_arc", "local_lambada")
    told = subprocess.run(
        [
            *(sys.executable, "-c", ALONE),
            *("run", "--model", "lesion", "--model_args", "model=bundled:llama-base,edit=0×0"),
            *("--include_path", str(folder), "--tasks", ",".join(names)),
            *("--log_samples", "--output_path", str(tmp_path), "--limit", "4"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert told.returncode == 0, told.stderr[-3000:]
    ours = {"samples": {}}
    for name in names:
        (file,) = tmp_path.rglob(f"samples_{name}_*.jsonl")
        ours["samples"][name] = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    with lesion.applied(model, ScaleBlock(0)):
        theirs = evaluated(harness_model(model), folder, names, limit=4)
    mine, yours = replies(ours), replies(theirs)
    assert mine.keys() == yours.keys()
    for key, said in mine.items():
        if key[0] == "local_gsm8k":
            assert said == yours[key], key
            continue
        for (score, greedy), (expected, greedily) in zip(said, yours[key], strict=True):
            # the harness writes numbers of its samples as texts
            assert float(score) == pytest.approx(expected, rel=1e-4, abs=1e-5), key
            assert str(greedy) == str(greedily), key
