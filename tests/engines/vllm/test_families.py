"""Every family that vLLM knows: edits of each unit and kind of storage say what the transformers engine says."""

import pytest
import torch
from transformers import XLNetConfig

from lesion.edits.edit import BASELINE, Edit, ScaleBlock, ScaleParameters, Truncate
from lesion.edits.selections.topk import Magnitude
from lesion.engines.config import EngineChoice
from lesion.engines.engine import Decoding, Request
from lesion.engines.factory import Opened
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.vllm.engine import VllmEngine
from lesion.errors import LesionError
from lesion.models.load import Model, load
from vllm_cases import NEEDED, answers, assert_same, generations, places, prompts, small, units

pytest.importorskip("vllm", reason=NEEDED)

SHORT = Decoding(5)


def edits(model: Model) -> list[Edit]:
    """Edits of places and units, the truncation of every matrix of one block, and a pruning that touches all there are,
    those of experts left out.
    """
    plain = [address for address, matrix in model.anatomy.matrices.items() if matrix.storage.expert is None]
    truncated: list[Edit] = [Truncate(address, 0.3) for address in plain if address.startswith("1.")]
    pruned = ScaleParameters(Magnitude(0.2, tuple(plain)), 0.0)
    return [*places(model), *units(model), *truncated, pruned]


def assert_agrees(model: Model, engine: VllmEngine) -> None:
    texts = prompts(model, (90,))[-2:]
    whole = prompts(model, (model.context,))[-1]
    ending = [whole, whole[3:]]  # answers may fill the context, and their last token needs no position
    asked = [
        *(Request(f"end {len(text)}", text, ScaleBlock(1, 0.5), Decoding(20)) for text in ending),
        *generations(texts, edits(model), SHORT),
        *(Request(f"tokens {edit}", texts[0], edit, tokens=(5, 61)) for edit in edits(model)),
    ]
    told = answers(engine, asked)
    assert_same(told, answers(TransformersEngine(model, 16), asked))
    # No edit is the baseline in disguise, and no two are one.
    assert len({told[f"tokens {edit}"].answer.scores for edit in edits(model)}) == len(edits(model))


FURTHER = [pytest.param(family, marks=pytest.mark.slow) for family in ("qwen3", "gemma2", "phi3", "opt")]


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "gpt2", "mixtral", *FURTHER])
def test_edits_of_a_family(family):
    model = small(family)
    with VllmEngine(model, 16, in_process=True) as engine:
        assert_agrees(model, engine)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt_neox", "olmo2"])
def test_a_family_that_vllm_takes_from_transformers_runs_in_a_process_of_its_own(family):
    model = small(family)
    with pytest.raises(LesionError, match="cannot run in this process"):
        VllmEngine(model, 16, in_process=True)
    with VllmEngine(model, 16) as engine:
        assert_agrees(model, engine)


def test_a_head_of_its_own_is_truncated():
    model = small("llama")
    assert model.anatomy.head is not None
    texts = prompts(model, ())
    with VllmEngine(model, 16, in_process=True) as engine:
        asked = generations(texts, [Truncate("head", 0.3), BASELINE], SHORT)
        assert_same(answers(engine, asked), answers(TransformersEngine(model, 16), asked))


def test_an_architecture_that_vllm_does_not_have_is_refused_before_its_weights_are_read(tmp_path):
    XLNetConfig(architectures=["XLNetLMHeadModel"]).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"none")
    with pytest.raises(LesionError, match=r"vLLM does not take .*'XLNetLMHeadModel'\] are not supported for now\. Use"):
        Opened(EngineChoice("vllm"), None).load(tmp_path, revision=None, dtype="auto", device="auto")


def test_a_model_that_vllm_refuses(shared):
    with pytest.raises(LesionError) as error:
        VllmEngine(load(shared / "models" / "stories260K"), in_process=True)
    said = str(error.value)
    assert "vLLM does not take" in said
    assert "head" in said
    assert "Use --engine transformers" in said


def test_weights_that_are_not_those_of_the_network_here_are_refused():
    model = load("bundled:llama-base")
    with torch.no_grad():
        model.network.get_input_embeddings().weight.mul_(1.05)
    with pytest.raises(
        LesionError, match=r"vLLM does not compute what the network of bundled:llama-base computes here"
    ):
        VllmEngine(model, 4, in_process=True)


def test_wrong_settings():
    model = load("bundled:llama-base")
    with pytest.raises(LesionError, match="several workers cannot be computed in one process"):
        VllmEngine(model, 1, tensor_parallel=2, in_process=True)


def test_closing_twice_and_a_second_engine_in_the_process():
    model = load("bundled:llama-base")
    threads, luck = torch.set_num_threads, torch.get_rng_state()
    asked = generations(prompts(model)[:1], [BASELINE, ScaleBlock(2)], SHORT)
    first = VllmEngine(model, 4, in_process=True)
    with pytest.raises(LesionError, match="One vLLM is running in this process already"):
        VllmEngine(model, 4, in_process=True)
    told = answers(first, asked)
    first.close()
    first.close()
    with pytest.raises(LesionError, match="closed"):
        answers(first, asked)
    assert first.closed
    assert torch.set_num_threads is threads
    assert torch.equal(torch.get_rng_state(), luck)
    with VllmEngine(model, 4, in_process=True) as second:
        assert_same(answers(second, asked), told, within=1e-6)


def test_closing_in_the_middle_of_an_edit_of_weights_leaves_the_network_as_it_was():
    model = load("bundled:llama-base")
    weight = model.anatomy.matrix("2.mlp.up").read()
    engine = VllmEngine(model, 4, in_process=True)
    half = engine.answer(generations(prompts(model), [Truncate("2.mlp.up", 0.1)], Decoding(30)))
    next(half)
    assert not torch.equal(model.anatomy.matrix("2.mlp.up").read(), weight)
    engine.close()
    half.close()
    assert torch.equal(model.anatomy.matrix("2.mlp.up").read(), weight)
