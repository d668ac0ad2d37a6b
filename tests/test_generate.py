"""What a model says to a prompt: what transformers' own `generate` says, also under edits of every form."""

import pytest
import torch

import lesion
from lesion.tasks.style import parted
from thinkers import OPENED, SWITCHED, thinker

PROMPT = "the cat sat on"
LENGTH = 5


def reference(model, edit=None) -> str:
    ids = model.tokenizer(PROMPT, return_tensors="pt").input_ids
    with lesion.applied(model, edit or "baseline"), torch.inference_mode():
        out = model.network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=LENGTH, do_sample=False)
    return model.tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)


def forms(model, tmp_path):
    magnitude = lesion.ScaleParameters(lesion.Magnitude(0.5), 0.0)
    file = lesion.save_edit(tmp_path / "m.edit", magnitude, model)
    return ["1×0", lesion.ScaleMlp(0, 2.0), lesion.Truncate("1.mlp.up", 0.1), ["0x0", "1x0"], file, magnitude]


def test_generate_says_what_transformers_generates_under_an_edit_of_any_form(llama, tmp_path):
    assert llama.generate(PROMPT, max_new_tokens=LENGTH, prompt_style="raw") == reference(llama)
    for edit in forms(llama, tmp_path):
        assert llama.generate(PROMPT, edit, max_new_tokens=LENGTH, prompt_style="raw") == reference(llama, edit), edit


def test_compare_has_the_model_as_it_is_first(llama, tmp_path):
    edits = forms(llama, tmp_path)
    frame = llama.compare(PROMPT, edits, max_new_tokens=LENGTH, prompt_style="raw")
    assert frame["answer"].tolist() == [reference(llama), *(reference(llama, edit) for edit in edits)]
    assert frame["edit"].tolist()[:5] == ["baseline", "1×0", "0.mlp×2", "1.mlp.up top 0.1", "0×0 + 1×0"]
    alone = llama.compare(PROMPT, "0-1×0", max_new_tokens=LENGTH, prompt_style="raw")
    assert alone["edit"].tolist() == ["baseline", "0×0 + 1×0"]
    assert alone["answer"].tolist() == frame["answer"].tolist()[::4][:2]
    assert len(llama.compare(PROMPT, lesion.Compose(("0×0", "1×0")), max_new_tokens=1)) == 2


def test_the_chat_template_is_used_where_there_is_one():
    base = lesion.load("bundled:llama-base")
    assert base.has_chat_template
    assert base.generate("Where does Nola Birken live?").strip() == "Farrowdale"
    assert base.generate("Where does Nola Birken live?", "0×0", max_new_tokens=4).strip() != "Farrowdale"


def test_settings_of_a_chat_are_those_of_its_template():
    speaker = thinker(SWITCHED)
    settings = {"thinking": "off", "system": "Be brief.", "template_arguments": ["effort=high"]}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}]
    text = speaker.tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False, effort="high"
    )
    said = speaker.generate(PROMPT, max_new_tokens=LENGTH, **settings)
    assert said == speaker.generate(text, max_new_tokens=LENGTH, prompt_style="raw")
    assert said != speaker.generate(PROMPT, max_new_tokens=LENGTH)
    compared = speaker.compare(PROMPT, "1×0", max_new_tokens=LENGTH, **settings)["answer"].tolist()
    assert compared == [said, speaker.generate(PROMPT, "1×0", max_new_tokens=LENGTH, **settings)]


def test_what_is_thought_is_told_from_the_answer_also_where_the_prompt_opens_it_and_a_limit_closes_it():
    said = thinker(OPENED).generate(PROMPT, max_new_tokens=60, thinking_tokens=3)
    assert said.startswith("<think>")
    trace, answer = parted(said)
    assert trace.rstrip().endswith("</think>")
    assert answer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edit": "banana"}, "'banana' is not an edit"),
        ({"edit": "99×0"}, "99"),
        ({"max_new_tokens": 0}, "at least 1 new token"),
        ({"prompt_style": "fancy"}, "There is no prompt style 'fancy'"),
        ({"prompt_style": "chat"}, "has no chat template"),
        ({"thinking": "on"}, "has no chat template, so that nothing can be set in one"),
        ({"thinking": "perhaps"}, "Thinking is on, off or auto"),
        ({"template_arguments": "effort"}, "'effort' is no argument of a chat template; write KEY=VALUE"),
        ({"thinking_tokens": 64}, "leave nothing of the 64"),
        ({"thinkin": "on"}, "unexpected keyword argument 'thinkin' .nearest: thinking"),
    ],
)
def test_what_cannot_be_is_refused(llama, options, message):
    with pytest.raises(lesion.UsageError, match=message):
        llama.generate(PROMPT, **options)


def test_a_comparison_under_an_edit_is_refused(llama):
    with lesion.applied(llama, "0x0"), pytest.raises(lesion.UsageError, match="edit in force, and a comparison"):
        llama.compare(PROMPT, "1x0", max_new_tokens=1)


def test_a_prompt_that_is_no_text_and_edits_of_a_generator(llama):
    with pytest.raises(lesion.UsageError, match="prompt must be text, not None"):
        llama.generate(None)
    said = llama.compare("2 + 2", (edit for edit in ["0x0", "1x0"]), max_new_tokens=1, prompt_style="raw")
    assert list(said["edit"]) == ["baseline", "0×0", "1×0"]
