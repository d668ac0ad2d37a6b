"""Supervised tuning: what is learned, what stays as it was, and interruptions that leave no trace."""

import math
import sys

import numpy as np
import pytest
import torch
from oracle import Interrupts
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from lesion.errors import LesionError, UsageError
from lesion.training.supervised import Example, Tuning, batch, supervise
from tiny import model

RECIPE = Tuning(steps=6, rows=4, learning_rate=1e-2)


def made(count=10, seed=0):
    """Examples of random tokens, of several lengths."""
    rng = np.random.default_rng(seed)

    def ids(low, high):
        return tuple(map(int, rng.integers(3, 64, rng.integers(low, high))))

    return [Example((1, *ids(2, 9)), (*ids(1, 6), 2)) for _ in range(count)]


def weights(subject):
    return {name: tensor.clone() for name, tensor in subject.network.state_dict().items()}


def changed(before, subject):
    return {name for name, tensor in subject.network.state_dict().items() if not torch.equal(tensor, before[name])}


# -- what is learned


def test_tuning_learns_the_completions(tmp_path):
    subject, examples = model("llama"), made(4)
    curve = supervise(subject, examples, Tuning(steps=40, rows=4, learning_rate=2e-2), tmp_path)
    assert curve[0]["loss"] > 2
    assert curve[-1]["loss"] < 0.1
    with torch.no_grad():
        for example in examples:
            ids = torch.tensor([example.prompt + example.completion])
            said = subject.network(ids).logits[0, len(example.prompt) - 1 : -1].argmax(-1)
            assert tuple(said.tolist()) == example.completion


def without_dropout(*subjects):
    for subject in subjects:
        for module in subject.network.modules():
            for name in ("p", "dropout", "activation_dropout", "attention_dropout"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, 0.0)


def naive_gradients(subject, examples):
    """Gradients, clipped, of the mean loss of completion tokens, row by row and without padding; and the loss."""
    network = subject.network.requires_grad_(True)
    total, count = 0.0, 0
    for example in examples:
        ids = torch.tensor([example.prompt + example.completion])
        logits = network(ids).logits[0, len(example.prompt) - 1 : -1]
        total = total + nn.functional.cross_entropy(logits, torch.tensor(example.completion), reduction="sum")
        count += len(example.completion)
    loss = total / count
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    return {name: p.grad for name, p in network.named_parameters()}, float(loss.detach())


# Tied embeddings and biases; soft caps and norms around each branch; transposed matrices; a network of no known kind.
@pytest.mark.parametrize("family", ["llama_tied", "gemma2", "gpt2", "unknown"])
def test_the_gradients_are_those_of_a_naive_loop_over_unpadded_rows(family, tmp_path):
    examples = made(4)
    subject, reference = model(family), model(family)
    without_dropout(subject, reference)
    curve = supervise(subject, examples, Tuning(steps=1, rows=4, learning_rate=1e-3), tmp_path)
    gradients, loss = naive_gradients(reference, examples)
    assert curve[0]["loss"] == pytest.approx(loss, rel=1e-5)
    assert curve[0]["tokens"] == sum(len(example.completion) for example in examples)
    # After one step, AdamW's first moment is a tenth of the gradient.
    moments = load_file(tmp_path / "resume.safetensors")
    for name, gradient in gradients.items():
        torch.testing.assert_close(10 * moments[f"exp_avg.{name}"], gradient, atol=1e-5, rtol=1e-3)


# -- what stays


def test_only_the_chosen_blocks_change_and_all_of_them_do_and_the_state_is_one_file_of_them(tmp_path):
    subject = model("qwen2")
    before = weights(subject)
    supervise(subject, made(), RECIPE, tmp_path, blocks=[1])
    inside = {name for name in before if name.startswith("model.layers.1.")}
    assert changed(before, subject) == inside
    assert_one_file_of_block_1(tmp_path)


def test_an_adapter_changes_the_linear_layers_of_its_blocks_alone_and_leaves_no_module_behind(tmp_path):
    subject = model("llama")
    before, modules = weights(subject), list(subject.network.modules())
    supervise(subject, made(), RECIPE, tmp_path, blocks=[0, 2], rank=2)
    moved = changed(before, subject)
    assert moved == {
        f"model.layers.{block}.{part}.weight"
        for block in (0, 2)
        for part in (
            *(f"self_attn.{name}_proj" for name in "qkvo"),
            *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
        )
    }
    for name in moved:
        difference = subject.network.state_dict()[name] - before[name]
        assert torch.linalg.matrix_rank(difference, rtol=1e-4) == 2
    assert list(subject.network.modules()) == modules


@pytest.mark.parametrize("rank", [None, 2])
def test_a_network_comes_back_in_eval_mode_without_gradients_even_from_an_interruption(rank, tmp_path):
    subject = model("llama")
    own, luck = set(vars(subject.network)), torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        supervise(subject, made(), RECIPE, tmp_path, watcher=Interrupts(2), rank=rank)
    assert not subject.network.training
    assert not any(p.requires_grad or p.grad is not None for p in subject.network.parameters())
    assert set(vars(subject.network)) == own
    assert torch.equal(torch.get_rng_state(), luck)
    assert subject.tokenizer.pad_token is None
    assert subject.network.config.pad_token_id is None


def test_experts_are_tuned_with_the_loss_that_balances_them_and_the_configuration_stays(tmp_path):
    subject = model("mixtral")
    before, configuration = weights(subject), subject.network.config.to_dict()
    (point,) = supervise(subject, made(4), Tuning(steps=1, rows=4), tmp_path)
    assert math.isfinite(point["loss"])
    assert any("gate" in name for name in changed(before, subject))
    assert subject.network.config.to_dict() == configuration


def test_nothing_is_sent_or_printed(tmp_path, monkeypatch, capfd):
    def send(**message):
        raise AssertionError(message)

    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", send)
    supervise(model("llama"), made(4), Tuning(steps=1, rows=4), tmp_path)
    assert capfd.readouterr() == ("", "")


def test_without_trl_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(LesionError, match=r"pip install 'lesion\[labs\]'"):
        supervise(model("llama"), made(4), Tuning(steps=1, rows=4), tmp_path)


# -- interruptions


@pytest.mark.parametrize("choice", [{}, {"blocks": [0, 1], "rank": 2}], ids=["all parameters", "adapter of blocks"])
def test_an_interrupted_training_ends_in_the_same_weights_bit_for_bit(choice, tmp_path):
    whole, broken = model("llama"), model("llama")
    curve = supervise(whole, made(), RECIPE, tmp_path / "whole", every=2, **choice)
    with pytest.raises(KeyboardInterrupt):
        supervise(broken, made(), RECIPE, tmp_path / "broken", every=2, watcher=Interrupts(3), **choice)
    again = model("llama")
    resumed = supervise(again, made(), RECIPE, tmp_path / "broken", every=2, **choice)
    assert not changed(weights(whole), again)
    assert [point["loss"] for point in resumed] == [point["loss"] for point in curve]
    # A finished one is put in place from its file.
    third = model("llama")
    assert supervise(third, made(), RECIPE, tmp_path / "broken", **choice) == resumed
    assert not changed(weights(whole), third)


def assert_one_file_of_block_1(tmp_path) -> None:
    """The state is one safetensors file and nothing else."""
    assert [path.name for path in tmp_path.rglob("*")] == ["resume.safetensors"]
    with safe_open(tmp_path / "resume.safetensors", "pt") as file:
        names = {key.partition(".")[2] for key in file.keys()}  # noqa: SIM118 (not a mapping)
    assert all(name.startswith("model.layers.1.") for name in names)


def test_the_folder_of_another_training_is_refused(tmp_path):
    one = Tuning(steps=1, rows=4)
    supervise(model("llama"), made(), one, tmp_path)
    for examples, recipe, choice, named in (
        (made(seed=1), one, {}, "examples"),
        (made(), Tuning(steps=2, rows=4), {}, "recipe"),
        (made(), one, {"blocks": [2]}, "blocks"),
        (made(), one, {"rank": 1}, "rank"),
    ):
        with pytest.raises(UsageError, match=rf"differs in: .*{named}.*--out"):
            supervise(model("llama"), examples, recipe, tmp_path, **choice)
    other = model("llama")
    other.network.model.norm.weight.data.add_(0.1)
    with pytest.raises(UsageError, match="starting weights"):
        supervise(other, made(), one, tmp_path)


def test_a_state_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "resume.safetensors").write_bytes(b"\x00" * 30)
    with pytest.raises(LesionError, match=r"resume\.safetensors holds no state"):
        supervise(model("llama"), made(), RECIPE, tmp_path)


# -- batches


def test_rows_are_padded_on_the_right_and_labelled_on_completions_alone():
    found = batch([Example((1, 5), (6, 2)), Example((1, 7, 8, 9), (4, 4, 2))], padding=0)
    assert found["input_ids"].tolist() == [[1, 5, 6, 2, 0, 0, 0], [1, 7, 8, 9, 4, 4, 2]]
    assert found["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0, 0], [1] * 7]
    assert found["labels"].tolist() == [[-100, -100, 6, 2, -100, -100, -100], [-100] * 4 + [4, 4, 2]]


# -- what cannot be


@pytest.mark.parametrize(
    ("examples", "choice", "message"),
    [
        ([], {}, "no examples"),
        (made(), {"blocks": [3]}, "no block 3"),
        (made(), {"blocks": []}, "No block"),
        (made(), {"rank": 17}, "rank of 1 to 16"),
    ],
)
def test_what_cannot_be_trained_is_told(examples, choice, message, tmp_path):
    with pytest.raises(LesionError, match=message):
        supervise(model("llama"), examples, RECIPE, tmp_path, **choice)


def test_a_loss_that_is_no_number_ends_the_training_and_leaves_the_last_good_state(tmp_path):
    subject = model("llama")
    recipe = Tuning(steps=20, rows=4, learning_rate=1e30)
    with pytest.raises(LesionError, match="smaller learning rate"):
        supervise(subject, made(), recipe, tmp_path, every=1)
    with safe_open(tmp_path / "resume.safetensors", "pt") as file:
        assert '"step": 0' not in file.metadata()["state"]
    assert not subject.network.training


def test_half_precision_is_refused(tmp_path):
    subject = model("llama")
    subject.network.half()
    with pytest.raises(LesionError, match="float32"):
        supervise(subject, made(), RECIPE, tmp_path)
