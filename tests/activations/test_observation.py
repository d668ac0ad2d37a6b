"""Observation: sums equal a naive float64 brute force, whatever the family, the padding and the batches."""

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

from lesion.activations import observation, readers, token_sums
from lesion.activations.batching import Budget, batches
from lesion.activations.calibration import Calibration, Draw
from lesion.activations.observation import observe
from lesion.activations.token_sums import Batch, row_counts, row_sums
from lesion.edits.selections.inputs import InputSums
from lesion.errors import LesionError
from tiny import BUILDS, model, texts

LENGTHS = (3, 9, 9, 14, 1, 6)
MOST = 1000  # a budget that takes all texts into one batch


def calibrated(some=None, draws=None):
    some = texts() if some is None else some
    count = len(some)
    draws = draws or (Draw(count, 0, tuple(range(count))),)
    ids = tuple(f"item{place}" for place in range(count))
    return Calibration("data", "raw", 3, False, True, ids, some, (False,) * count, draws)


class Captured:
    """Every input of every matrix by hooks of its own, one text at a time, float64: address → list of [tokens, in]."""

    def __init__(self, lesioned, some):
        self.inputs = {address: [] for address in lesioned.anatomy.scored}
        self.gates: dict[str, list] = {}
        handles = []
        held: dict[nn.Module, list] = {}
        for address, matrix in lesioned.anatomy.scored.items():
            held.setdefault(matrix.module, []).append((address, matrix))
        for module, members in held.items():
            expert = members[0][1].storage.expert is not None
            hook = self.experts(members) if expert else self.whole(members)
            handles.append(module.register_forward_pre_hook(hook))
        with torch.no_grad():
            for text in some:
                lesioned.network(input_ids=torch.tensor([text]), use_cache=False)
        for handle in handles:
            handle.remove()

    def whole(self, members):
        def hook(module, args):
            for address, matrix in members:
                self.inputs[address].append(args[0].reshape(-1, matrix.shape[1]).double().numpy())

        return hook

    def experts(self, members):
        by_name = dict(members)

        def hook(module, args):
            hidden, index, _ = args
            for address in by_name:
                stem = address.rpartition(".")[0]
                number = by_name[address].storage.expert
                x = hidden[[number in chosen for chosen in index.tolist()]]
                if address.endswith(".down"):
                    gate, up = (x @ by_name[f"{stem}.{name}"].read().T for name in ("gate", "up"))
                    self.gates.setdefault(address, []).append(nn.functional.silu(gate).double().numpy())
                    x = nn.functional.silu(gate) * up
                self.inputs[address].append(x.double().numpy())

        return hook


@pytest.mark.parametrize("family", BUILDS)
def test_every_matrix_of_every_family_is_observed_as_a_brute_force_sees_it(family):
    lesioned, some = model(family), texts()
    (found,) = observe(lesioned, calibrated(some), batch_tokens=MOST)
    captured = Captured(lesioned, some)
    assert set(found.readers) == set(lesioned.anatomy.scored)
    for address, inputs in captured.inputs.items():
        sums = found.of(address)
        squares = np.stack([(x**2).sum(axis=0) for x in inputs])
        np.testing.assert_allclose(sums.norms, np.sqrt(squares).sum(axis=0), rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(sums.squares, squares.sum(axis=0), rtol=4e-5, atol=1e-6)
        assert sums.tokens == sum(len(x) for x in inputs)


@pytest.mark.parametrize("chunk", [1, 30, 1 << 22])
@pytest.mark.parametrize("ways", [("row_sums", "row_counts"), ("sums_at_once", "counts_at_once")])  # CPU, accelerator
def test_of_the_same_activations_the_vectors_equal_numpy_float64_to_the_bit(ways, chunk, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(5, 11, 7, generator=generator)
    batch = Batch((11, 4, 9, 1, 7), 11)
    for row, length in enumerate(batch.lengths):
        values[row, length:] = torch.nan  # padding never enters, whatever it is
    monkeypatch.setattr(token_sums, "CHUNK", chunk)
    sums, counts = (getattr(token_sums, way)(values, batch) for way in ways)
    exact = [values[row, :length].numpy().astype(np.float64) for row, length in enumerate(batch.lengths)]
    expected = np.stack([(x**2).sum(axis=0) for x in exact])
    np.testing.assert_array_equal(np.sqrt(sums.numpy()).astype(np.float32), np.sqrt(expected).astype(np.float32))
    np.testing.assert_array_equal(counts.numpy(), np.stack([(x > 0).sum(axis=0) for x in exact]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_squared_and_summed_in_float64(dtype):
    values = torch.full((1, 3000, 2), 200.0, dtype=dtype)  # 200² · 3000 is beyond float16, and 3000 beyond bfloat16
    batch = Batch((3000,), 3000)
    np.testing.assert_array_equal(row_sums(values, batch).numpy(), [[200.0**2 * 3000] * 2])
    np.testing.assert_array_equal(row_counts(values, batch).numpy(), [[3000.0] * 2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_models_in_half_precision_are_observed(dtype):
    from lesion.models.load import wrap
    from tiny import tiny, tokenizer

    halved = wrap(tiny("qwen2_moe").to(dtype), tokenizer(), "half")
    (found,) = observe(halved, calibrated())
    assert set(found.readers) == set(halved.anatomy.scored)
    (whole,) = observe(model("qwen2_moe"), calibrated())
    torch.testing.assert_close(found.of("0.attention.q").norms, whole.of("0.attention.q").norms, rtol=0.05, atol=0.05)


def test_matrices_that_read_one_tensor_share_one_vector_named_after_the_first():
    llama, moe = (observe(model(family), calibrated())[0] for family in ("llama", "qwen2_moe"))
    assert {a: k for a, k in llama.readers.items() if a.startswith("1.")} == {
        **dict.fromkeys(("1.attention.q", "1.attention.k", "1.attention.v"), "1.attention.q"),
        "1.attention.o": "1.attention.o",
        "1.mlp.gate": "1.mlp.gate",
        "1.mlp.up": "1.mlp.gate",
        "1.mlp.down": "1.mlp.down",
    }
    assert moe.readers["0.mlp.shared.up"] == moe.readers["0.mlp.shared.router"] == "0.mlp.router"
    assert moe.readers["0.mlp.expert1.up"] == "0.mlp.expert1.gate"  # sees only what is routed to it


@pytest.mark.parametrize(
    ("family", "address", "act"),
    [
        ("llama", "0.mlp.gate", nn.functional.silu),
        ("phi3", "2.mlp.gate", nn.functional.silu),
        ("gemma2", "1.mlp.gate", lambda x: nn.functional.gelu(x, approximate="tanh")),
        ("qwen2_moe", "0.mlp.shared.gate", nn.functional.silu),
    ],
)
def test_active_counts_tokens_on_which_the_gate_is_open(family, address, act):
    lesioned = model(family)
    (found,) = observe(lesioned, calibrated(), batch_tokens=20)
    weight = lesioned.anatomy.matrix(address).read().double()
    x = np.concatenate(Captured(lesioned, texts()).inputs[address])
    open_gates = act(torch.from_numpy(x) @ weight.T) > 0
    active = found.of(address.replace("gate", "down")).active
    assert active.dtype == torch.int64
    # A gate within rounding of 0 may fall on either side.
    assert (active - open_gates.sum(0)).abs().max() <= 1
    assert (active == open_gates.sum(0)).float().mean() > 0.95


@pytest.mark.parametrize(
    ("family", "address"), [("gpt2", "1.mlp.out"), ("opt", "0.mlp.out"), ("gpt_neox", "2.mlp.out")]
)
def test_active_of_a_plain_mlp_counts_inputs_above_zero(family, address):
    lesioned = model(family)
    (found,) = observe(lesioned, calibrated(), batch_tokens=20)
    x = np.concatenate(Captured(lesioned, texts()).inputs[address])
    assert (found.of(address).active.numpy() == (x > 0).sum(axis=0)).mean() > 0.95
    assert found.of(address.replace("out", "in")).active is None


def test_active_of_an_expert_counts_its_routed_tokens():
    lesioned = model("mixtral")
    (found,) = observe(lesioned, calibrated(), batch_tokens=MOST)
    captured = Captured(lesioned, texts())
    for address, gates in captured.gates.items():
        np.testing.assert_allclose(found.of(address).active, (np.concatenate(gates) > 0).sum(axis=0), atol=1)
    tokens = [found.of(f"0.mlp.expert{n}.down").tokens for n in range(4)]
    assert sum(tokens) == 2 * sum(LENGTHS)  # two experts a token


def test_where_the_activation_cannot_be_told_nothing_is_counted():
    (found,) = observe(model("unknown"), calibrated())
    assert all(sums.active is None for sums in found.sums.values())


def test_an_expert_that_saw_no_token_has_none_and_zeros():
    (found,) = observe(model("mixtral"), calibrated(texts((1,))))
    idle = [sums for key, sums in found.sums.items() if "expert" in key and sums.tokens == 0]
    assert len(idle) == 2 * 2 * 3  # of four experts one token wakes two, in each of three blocks
    for sums in idle:
        assert not sums.norms.any()
        assert not sums.squares.any()
        assert sums.active is None or not sums.active.any()


def test_draws_are_weighted_sums_of_the_same_texts():
    some = texts()
    draws = (Draw(6, 0, (0, 1, 2, 3, 4, 5)), Draw(3, 1, (2, 2, 5)))
    lesioned = model("llama")
    both = observe(lesioned, calibrated(some, draws), batch_tokens=MOST)
    singles = [observe(lesioned, calibrated((text,)), batch_tokens=MOST)[0] for text in some]
    assert [inputs.texts for inputs in both] == [6, 3]
    assert [inputs.tokens for inputs in both] == [sum(LENGTHS), 2 * LENGTHS[2] + LENGTHS[5]]
    assert both[1].provenance[0].ids == ("item2", "item2", "item5")
    assert both[1].provenance[0].repeat == 1
    for key, sums in both[1].sums.items():
        expected = 2 * singles[2].sums[key].norms + singles[5].sums[key].norms
        torch.testing.assert_close(sums.norms, expected, rtol=1e-5, atol=1e-6)
        assert sums.tokens == both[1].tokens


def test_two_shards_add_up_to_the_whole():
    lesioned, some = model("gpt_neox"), texts()
    whole, first, second = (observe(lesioned, calibrated(part))[0] for part in (some, some[:2], some[2:]))
    merged = first + second
    for key, sums in whole.sums.items():
        torch.testing.assert_close(sums.norms, merged.sums[key].norms, rtol=1e-5, atol=1e-6)
        assert sums.tokens == merged.sums[key].tokens


@pytest.mark.same_bits("one text twice, the same weights")
def test_the_model_is_as_it_was():
    lesioned = model("llama_tied")
    ids = torch.tensor([texts()[3]])
    before = lesioned.network(input_ids=ids).logits
    hooks = [module._forward_hooks | module._forward_pre_hooks for module in lesioned.network.modules()]
    observe(lesioned, calibrated())
    assert torch.equal(lesioned.network(input_ids=ids).logits, before)
    assert hooks == [module._forward_hooks | module._forward_pre_hooks for module in lesioned.network.modules()]


def test_logits_are_never_computed(monkeypatch):
    lesioned = model("llama")

    def refuse(self, x):
        raise AssertionError("the head ran")

    head = type("Head", (nn.Linear,), {"forward": refuse})
    lesioned.network.lm_head.__class__ = head
    (found,) = observe(
        dataclasses.replace(lesioned, anatomy=dataclasses.replace(lesioned.anatomy, head=None, build=None)),
        calibrated(),
    )
    assert "head" not in found.readers
    assert len(found.readers) == len(lesioned.anatomy.matrices)


def test_a_module_that_is_never_called_or_called_twice_is_not_among_the_readers():
    lesioned = model("llama")
    mlp = lesioned.anatomy.blocks[0].module.mlp
    attention = lesioned.anatomy.blocks[1].module.self_attn
    mlp.forward = lambda x: torch.zeros_like(x)
    project = attention.o_proj
    original = attention.forward

    def twice(*args, **kwargs):
        project(torch.ones(1, 1, 32))
        return original(*args, **kwargs)

    attention.forward = twice
    (found,) = observe(lesioned, calibrated())
    missing = set(lesioned.anatomy.scored) - set(found.readers)
    assert missing == {"0.mlp.gate", "0.mlp.up", "0.mlp.down", "1.attention.o"}


def test_rows_and_tokens_that_lie_in_another_order_are_not_among_the_readers():
    lesioned = model("llama")
    mlp = lesioned.anatomy.blocks[0].module.mlp
    down = mlp.down_proj

    class Turned(nn.Module):  # tokens before rows, end to end
        def forward(self, x):
            hidden = mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x)
            flat = hidden.transpose(0, 1).reshape(-1, hidden.shape[-1])
            return down(flat).view(x.shape[1], x.shape[0], -1).transpose(0, 1)

    mlp.forward = Turned().forward
    (found,) = observe(lesioned, calibrated())
    assert set(lesioned.anatomy.scored) - set(found.readers) == {"0.mlp.down"}


def test_an_input_that_changes_its_shape_on_the_way_is_not_among_the_readers():
    lesioned = model("llama")
    mlp = lesioned.anatomy.blocks[2].module.mlp
    original = mlp.forward
    # Long rows in two pieces: the probe, which is short, does not see it.
    mlp.forward = lambda x: torch.cat([original(x[:, :8]), original(x[:, 8:])], 1) if x.shape[1] > 8 else original(x)
    (found,) = observe(lesioned, calibrated())
    assert set(lesioned.anatomy.scored) - set(found.readers) == {"2.mlp.gate", "2.mlp.up", "2.mlp.down"}


def test_values_that_are_not_finite_are_an_error_that_names_the_matrices():
    lesioned = model("llama")
    lesioned.network.model.embed_tokens.weight[texts()[3][0]] = torch.inf
    with pytest.raises(LesionError, match=r"0\.attention\.q, 0\.attention\.k.* is not finite"):
        observe(lesioned, calibrated())


def test_texts_of_another_models_tokenizer_are_refused():
    with pytest.raises(LesionError, match=r"tokenizer of tiny:llama does not fit its network.* beyond the 64 "):
        observe(model("llama"), calibrated(((1, 2), (3, 64))))


@pytest.mark.parametrize("budget", [1, 7, 20, 28, 1000])
def test_batches_hold_every_text_once_and_stay_within_their_budget(budget):
    lengths = [14, 9, 9, 6, 3, 1]
    found = batches(lengths, Budget(budget))
    assert [place for batch in found for place in batch] == list(range(6))
    assert all(len(batch) == 1 or len(batch) * lengths[batch[0]] <= budget for batch in found)


def test_where_padding_is_not_exact_only_texts_of_one_length_share_a_batch():
    assert batches([9, 9, 6, 6, 6, 1], Budget(18, equal=True)) == [[0, 1], [2, 3, 4], [5]]


@dataclass
class Listener:
    told: list = field(default_factory=list)
    stop_after: int = 10**9

    def begin(self, model, total, stored, what="answers"):
        self.told.append((model, total, stored))

    def answered(self, count):
        self.told.append(count)
        if len(self.told) > self.stop_after:
            raise KeyboardInterrupt

    def note(self, text):
        self.told.append(text)


def same(first, second):
    return first.readers == second.readers and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for key in first.sums
        for a, b in (
            (getattr(first.sums[key], f.name), getattr(second.sums[key], f.name)) for f in dataclasses.fields(InputSums)
        )
    )


def test_an_interrupted_observation_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(observation, "SECONDS_BETWEEN_SAVES", -1.0)
    lesioned, file = model("mixtral"), tmp_path / "deep" / "partial.safetensors"
    listener = Listener()
    (whole,) = observe(lesioned, calibrated(), batch_tokens=14, watcher=listener)
    assert listener.told == [("tiny:mixtral", 6, 0), 1, 1, 1, 2, 1]  # 14 | 9 | 9 | 6 + 3 | 1, by budget
    with pytest.raises(KeyboardInterrupt):
        observe(lesioned, calibrated(), batch_tokens=14, watcher=Listener(stop_after=3), progress=file)
    assert file.exists()
    again = Listener()
    (resumed,) = observe(lesioned, calibrated(), batch_tokens=14, watcher=again, progress=file)
    assert again.told[0] == ("tiny:mixtral", 6, 2)
    assert same(resumed, whole)
    assert list(file.parent.iterdir()) == []


def test_partial_sums_of_other_texts_another_model_or_no_sums_at_all_are_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(observation, "SECONDS_BETWEEN_SAVES", -1.0)
    file = tmp_path / "partial.safetensors"
    with pytest.raises(KeyboardInterrupt):
        observe(model("llama"), calibrated(), batch_tokens=1, watcher=Listener(stop_after=3), progress=file)
    kept = file.read_bytes()
    half = kept[: len(kept) // 2]
    for lesioned, some, content in (
        (model("llama"), texts(seed=1), kept),
        (model("mistral"), texts(), kept),
        (model("llama"), texts(), half),
        (model("llama"), texts(), b"not sums"),
    ):
        file.write_bytes(content)
        listener = Listener()
        (found,) = observe(lesioned, calibrated(some), batch_tokens=1, watcher=listener, progress=file)
        assert listener.told[0][2] == 0
        assert same(found, observe(lesioned, calibrated(some), batch_tokens=1)[0])


def test_a_batch_for_which_memory_does_not_suffice_is_halved_and_counted_once(monkeypatch):
    lesioned = model("llama")
    (expected,) = observe(lesioned, calibrated(), batch_tokens=1)
    original = lesioned.network.model.layers[1].forward

    def short(hidden_states, *args, **kwargs):
        if hidden_states.shape[0] > 2:
            raise torch.OutOfMemoryError("out of memory")
        return original(hidden_states, *args, **kwargs)

    lesioned.network.model.layers[1].forward = short
    (found,) = observe(lesioned, calibrated(), batch_tokens=MOST)
    for key, sums in found.sums.items():
        assert sums.tokens == expected.sums[key].tokens
        torch.testing.assert_close(sums.norms, expected.sums[key].norms, rtol=1e-5, atol=1e-6)


def overflowing(token: int):
    """A model that overflows on one token, and on no other."""
    lesioned = model("llama")
    with torch.no_grad():
        lesioned.network.model.embed_tokens.weight[token] = float("inf")
    return lesioned


def test_the_probe_looks_at_tokens_of_the_texts_so_that_others_cannot_hide_a_matrix():
    lesioned = overflowing(3)  # the first token that a probe without texts takes
    found = observe(lesioned, calibrated(((10, 11, 12, 13, 14, 15), (20, 21, 22))))[0]
    assert set(found.readers) == set(lesioned.anatomy.scored)
    with pytest.raises(LesionError, match=r"flows into 0\.\S+ of tiny:llama is not finite in float32.*bfloat16"):
        readers.probe(lesioned)


@pytest.mark.parametrize("some", [((7,),), ((7,), (7,)), ((7, 8),), ((7,) * 9, (7,) * 9)])
def test_few_and_equal_texts_are_probed_as_well(some):
    lesioned = model("llama")
    assert set(observe(lesioned, calibrated(some))[0].readers) == set(lesioned.anatomy.scored)
