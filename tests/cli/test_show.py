"""`lesion show` says what lies on the table, in numbers that the model itself confirms."""

import io
from dataclasses import replace

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import architectures_zoo as zoo
from lesion.cli.description import describe
from lesion.cli.model import show
from lesion.models.load import wrap
from tiny import FAMILIES, model, tokenizer


def text(loaded) -> str:
    console = Console(file=io.StringIO(), width=160, highlight=False)
    console.print(describe(loaded))
    return console.file.getvalue()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_shown(family):
    loaded = model(family)
    shown = text(loaded)
    assert f"{sum(p.numel() for p in loaded.network.parameters()):,} in all" in shown
    assert loaded.fingerprint in shown
    for word in ("attention.q", "attention.o", "256 tokens", "float32", "cpu", "norm gain"):
        assert word in shown
    assert ("found by structure" in shown) == (family == "unknown")


@pytest.mark.parametrize(
    ("family", "heads"),
    [
        ("qwen3", "4 (0 to 3) of size 16 in 2 key-value groups"),
        ("gpt2", "4 (0 to 3) of size 8"),
        ("unknown", "not known, but an attention can be edited as a whole"),
    ],
)
def test_it_says_how_many_heads_can_be_edited(family, heads):
    assert f"heads a block {heads}" in [" ".join(line.split()) for line in text(model(family)).splitlines()]


@pytest.mark.parametrize(
    ("family", "units"),
    [
        ("llama", "48 neurons (0 to 47)"),
        ("qwen2_moe", "blocks 0, 2: 4 experts (0 to 3); block 1: 48 neurons (0 to 47)"),
        ("unknown", "96 neurons (0 to 95)"),
    ],
)
def test_it_says_how_many_neurons_or_experts_can_be_edited(family, units):
    assert f"MLP a block {units}" in [" ".join(line.split()) for line in text(model(family)).splitlines()]


def test_it_says_which_blocks_of_a_hybrid_have_heads_and_an_mlp():
    shown = " ".join(text(wrap(zoo.made("nemotron_h"), tokenizer(), "tiny:hybrid")).split())
    assert "block 0: not known, but an attention can be edited as a whole; blocks 1, 3: no attention is known" in shown
    assert "block 2: 4 (0 to 3) of size 8 in 2 key-value groups" in shown
    assert "blocks 0, 2: no MLP is known; block 1: 4 experts (0 to 3); block 3: 48 neurons (0 to 47)" in shown


def test_alike_blocks_and_experts_are_one_line_each():
    lines = [" ".join(line.split()) for line in text(model("qwen2_moe")).splitlines()]
    assert "0, 2 attention.q 32 × 32 Linear float32 1,024" in lines
    assert "mlp.expert0–3.down 32 × 24 expert slice float32 4 × 768" in lines
    assert "1 attention.q 32 × 32 Linear float32 1,024" in lines
    assert "model.layers.{0–2}.input_layernorm.weight: norm gain (32 each)" in lines


def test_tied_weights_count_once():
    shown = text(model("llama_tied"))
    assert "model.embed_tokens.weight = lm_head.weight" in shown
    assert "2,048 in embedding and head" in shown
    assert "4,096 in embedding and head" in text(model("llama"))


def test_the_prompt_style_is_the_chat_template_where_there_is_one():
    loaded = model("llama")
    assert "plain text (it has no chat template)" in text(loaded)
    loaded.tokenizer.chat_template = "{{ messages[0].content }}"
    assert "the model's own chat template" in text(loaded)


def test_names_are_never_read_as_markup():
    assert "[bold]odd[/bold] [/name]" in text(replace(model("llama"), name="[bold]odd[/bold] [/name]"))


def test_the_command_shows_a_real_model(shared):
    app = typer.Typer()
    app.command()(show)
    result = CliRunner().invoke(app, [str(shared / "models" / "stories260K"), "--dtype", "bfloat16"])
    assert result.exit_code == 0, result.output
    assert "260,032 in all" in result.output
    assert "bfloat16" in result.output
