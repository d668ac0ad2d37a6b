"""Edits of every form written into a checkpoint: it says what the model says under the edit in memory."""

import pytest
import torch
from transformers import AutoModelForCausalLM

import architectures_zoo as zoo
import lesion
from lesion.edits.files.as_weights import as_weights, edit_files
from lesion.models.load import wrap
from tiny import model, tiny, tokenizer

IDS = torch.arange(10)[None]


def checkpoint(folder, family="llama"):
    tiny(family).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def logits(model) -> torch.Tensor:
    with torch.inference_mode():
        return model.network(IDS).logits


def assert_same(folder, base, edit) -> None:
    with lesion.applied(base, edit):
        wanted = logits(base)
    assert not torch.allclose(wanted, logits(base), atol=1e-3)
    torch.testing.assert_close(logits(lesion.load(folder)), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "edit",
    [
        "1x0", lesion.ScaleMlp(0, 0.5), ["0.attention×2", "1.mlp×0"], "0-1×0", lesion.Truncate("1.mlp.up", 0.1),
        lesion.ScaleParameters(lesion.Magnitude(0.3), 0.0), "0.mlp×0.5 + 1.mlp.up top 0.1",
    ],
)  # fmt: skip
def test_a_checkpoint_says_what_the_model_says_under_the_edit(edit, tmp_path):
    source = checkpoint(tmp_path / "base")
    done = lesion.apply(source, edit, tmp_path / "out")
    assert done.folder == tmp_path / "out"
    assert_same(tmp_path / "out", lesion.load(source), edit)


def test_files_values_and_texts_may_stand_together(tmp_path):
    source = checkpoint(tmp_path / "base")
    base = lesion.load(source)
    magnitude = lesion.ScaleParameters(lesion.Magnitude(0.3, ("0.mlp.up",)), 0.0)
    path = lesion.save_edit(tmp_path / "cut.edit", magnitude, base)
    done = lesion.apply(source, [path, "1×0"], tmp_path / "out")
    assert [each.file.label for each in done.edits] == ["magnitude-0.3", "1x0"]
    assert_same(tmp_path / "out", base, [magnitude, "1×0"])


def test_another_factor_is_that_of_the_edit_not_of_the_weights_it_is_written_as(tmp_path):
    source = checkpoint(tmp_path / "base")
    lesion.apply(source, "1.mlp×0", tmp_path / "mlp", factor=0.5)
    assert_same(tmp_path / "mlp", lesion.load(source), "1.mlp×0.5")
    with pytest.raises(lesion.UsageError, match=r"1×0\.5"):  # 1×0 could be written; 1×0.5 cannot
        lesion.apply(source, "1×0", tmp_path / "block", factor=0.5)


def test_a_file_needs_no_model(tmp_path):
    path = lesion.save_edit(tmp_path / "cut.edit", lesion.ScaleParameters(lesion.Magnitude(0.3)), model("llama"))

    def refused():
        raise AssertionError("the model was loaded")

    for given in (path, str(path), lesion.read_edit(path), [path]):
        assert [file.label for file in edit_files(given, refused)] == ["magnitude-0.3"]


@pytest.mark.parametrize("family", ["gpt_neox", "gpt2", "opt"])
@pytest.mark.parametrize("edit", ["1×0", "1.mlp×0.5", "0.attention×0 + 1.attention×2"])
def test_the_bias_behind_the_last_matrix_is_multiplied_with_it(family, edit, tmp_path):
    source = checkpoint(tmp_path / "base", family)
    lesion.apply(source, edit, tmp_path / "out")
    assert_same(tmp_path / "out", lesion.load(source), edit)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("edit", ["1.attention.head.2×0", "0.attention.group.1×0.5 + 2.attention.head.0×0"])
def test_a_head_is_written_as_columns_and_the_bias_stays_also_before_a_norm(family, edit, tmp_path):
    source = checkpoint(tmp_path / "base", family)
    lesion.apply(source, edit, tmp_path / "out")
    assert_same(tmp_path / "out", lesion.load(source), edit)


@pytest.mark.parametrize(
    ("family", "edit"),
    [
        ("llama", "1.mlp.neuron.3×0 + 0.mlp.neuron.47×-3 + 2.mlp.up×0.5"),
        ("gpt2", "0.attention.q×0 + 1.mlp.in×0.5 + 1.mlp.neuron.3×9"),
        ("phi3", "0.attention.v×2 + 1.mlp.gate×0.5"),
        ("gemma2", "1.mlp.down×0.5 + 2.mlp.neuron.1×0"),
        ("mixtral", "1.mlp.expert.2×0 + 0.mlp.expert.1×0.5 + 2.mlp.expert0.up×0.5 + 1.attention.k×0"),
    ],
)
def test_neurons_experts_and_matrices_are_written_as_their_weights(family, edit, tmp_path):
    source = checkpoint(tmp_path / "base", family)
    lesion.apply(source, edit, tmp_path / "out")
    assert_same(tmp_path / "out", lesion.load(source), edit)


def test_a_block_of_gpt_neox_is_off_in_plain_transformers_too(tmp_path):
    source = checkpoint(tmp_path / "base", "gpt_neox")
    lesion.apply(source, ["1×0", "2×0.5"], tmp_path / "out")
    network, edited = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("base", "out"))
    for parameter, unedited in network.gpt_neox.layers[2].named_parameters():
        if parameter.startswith(("attention.dense.", "mlp.dense_4h_to_h.")):
            assert torch.equal(edited.gpt_neox.layers[2].get_parameter(parameter), unedited / 2), parameter
    branches = [network.gpt_neox.layers[1].attention.dense, network.gpt_neox.layers[1].mlp.dense_4h_to_h]
    branches += [network.gpt_neox.layers[2].attention.dense, network.gpt_neox.layers[2].mlp.dense_4h_to_h]
    for branch, factor in zip(branches, [0, 0, 0.5, 0.5], strict=True):
        branch.register_forward_hook(lambda module, given, output, factor=factor: output * factor)
    with torch.inference_mode():
        torch.testing.assert_close(edited(IDS).logits, network(IDS).logits)


@pytest.mark.parametrize("kind", ["mamba2", "nemotron_h"])
def test_a_block_of_one_branch_is_written_with_any_factor(kind, tmp_path):
    """A state-space layer without an MLP behind it, against a hook in plain transformers."""
    zoo.made(kind).save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    lesion.apply(tmp_path / "base", "0×0 + 2×0.5", tmp_path / "out")
    with pytest.raises(lesion.UsageError, match=r"No mlp is known in block 0 of .*Edit whole blocks \(0, or"):
        lesion.apply(tmp_path / "base", "0.mlp×0", tmp_path / "other")
    network, edited = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("base", "out"))
    layers = network.get_decoder().layers
    for layer, factor in ((0, 0.0), (2, 0.5)):
        layers[layer].register_forward_hook(lambda block, given, output, f=factor: given[0] + f * (output - given[0]))
    with torch.inference_mode():
        torch.testing.assert_close(edited(IDS).logits, network(IDS).logits)


def test_the_card_names_the_biases_and_says_that_the_kept_file_has_none(tmp_path):
    source = checkpoint(tmp_path / "base", "gpt_neox")
    lesion.apply(source, "1.mlp×0.5", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "`1.mlp.out` by 0.5" in card
    assert "Weights and biases of" in card
    assert "holds the weights alone" in card
    assert lesion.read_edit(next((tmp_path / "out" / "lesion").glob("*.edit"))).biases == {}


def test_trying_an_edit_leaves_the_biases_as_they_were():
    base = model("gpt2")
    before = {name: tensor.clone() for name, tensor in base.network.state_dict().items()}
    as_weights(lesion.parse("1×0 + 0.mlp×0.3"), base)
    for name, tensor in base.network.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize(
    ("family", "edit", "why"),
    [
        (
            "llama",
            "1×0.5",
            r"the MLP of block 1 would read an attention .* Write '1.attention×0.5 \+ 1.mlp×0.5' .* a factor of 0",
        ),
        ("gemma2", "1.mlp×0.5", "a norm stands behind the last matrix of 1.mlp; write a factor of 0, or keep"),
        ("unknown", "1×0", "a norm stands behind the last matrix of 1.attention; keep the edit as text"),
    ],
)
def test_what_is_another_function_as_weights_is_refused_and_its_obstacle_named(family, edit, why):
    refusal = f"'{edit}' cannot be written into the weights of tiny:{family}: {why}"
    with pytest.raises(lesion.UsageError, match=refusal):
        edit_files(edit, lambda: model(family))


def test_a_factor_of_0_is_not_advised_where_it_is_no_way_out():
    """Blocks of MiniMax add to a multiple of their normalised input."""
    subject = wrap(zoo.made("minimax"), tokenizer(), "tiny:minimax")
    refusal = r"block 1 adds something beside .* Write '1.attention×0 \+ 1.mlp×0' if that is meant, or keep"
    with pytest.raises(lesion.UsageError, match=refusal):
        edit_files("1×0", lambda: subject)


def test_an_edit_that_changes_nothing_is_named_as_it_was_typed():
    subject = model("llama")
    with pytest.raises(lesion.UsageError, match="'1×1' changes nothing in tiny:llama: the factor is 1"):
        edit_files("1x1", lambda: subject)
    subject = model("llama")
    for matrix in ("1.attention.o", "1.mlp.down"):
        subject.anatomy.matrix(matrix).tensor.data.zero_()
    with pytest.raises(
        lesion.UsageError, match=r"'1×0' changes nothing .* the weights that it would multiply are all 0"
    ):
        edit_files("1x0", lambda: subject)
