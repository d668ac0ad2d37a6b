"""Hidden states: every family's stream as transformers or plain hooks see it, one text at a time, without padding."""

import shutil
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lesion.activations import hidden_states as hidden
from lesion.activations.hidden_states import HiddenStates, hidden_states, sweep
from lesion.errors import LesionError, UsageError
from tiny import BUILDS, model, texts


def one_by_one(lesioned, some):
    """[layers, tokens, width] by hooks on the blocks, each text alone and without a mask."""
    layers = len(lesioned.anatomy.blocks) + 1
    seen = [[] for _ in range(layers)]

    def keep(index):
        def hook(module, args, output):
            seen[index].append((output[0] if isinstance(output, tuple) else output)[0].float().numpy().copy())

        return hook

    def first(module, args, kwargs):
        seen[0].append((args[0] if args else kwargs["hidden_states"])[0].float().numpy().copy())

    blocks = [block.module for block in lesioned.anatomy.blocks]
    handles = [blocks[0].register_forward_pre_hook(first, with_kwargs=True)]
    handles += [block.register_forward_hook(keep(index + 1)) for index, block in enumerate(blocks)]
    with torch.no_grad():
        for text in some:
            lesioned.network(input_ids=torch.tensor([text]), use_cache=False)
    for handle in handles:
        handle.remove()
    return np.stack([np.concatenate(layer) for layer in seen])


@pytest.mark.parametrize("family", BUILDS)
def test_every_layer_of_every_family_is_what_texts_alone_give(family):
    lesioned, some = model(family), texts()
    expected = one_by_one(lesioned, some)
    with hidden_states(lesioned, some, batch_tokens=1000) as states:
        assert (states.layers, states.tokens, states.width) == expected.shape
        for layer in range(states.layers):
            found = states.layer(layer)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, expected[layer], rtol=1e-4, atol=1e-4 * np.abs(expected[layer]).max())


def test_layers_but_the_last_are_those_of_transformers_and_the_last_is_before_the_norm():
    lesioned, some = model("llama"), texts((7,))
    with torch.no_grad():
        given = lesioned.network.model(input_ids=torch.tensor(some), output_hidden_states=True)
        normed = given.hidden_states
    with hidden_states(lesioned, some) as states:
        for layer in range(states.layers - 1):
            np.testing.assert_allclose(states.layer(layer), normed[layer][0], atol=1e-6)
        last = torch.from_numpy(states.layer(states.layers - 1))
        assert not torch.allclose(last, normed[-1][0], atol=1e-2)
        torch.testing.assert_close(lesioned.network.model.norm(last), normed[-1][0])
        embedded = lesioned.network.get_input_embeddings()(torch.tensor(some[0]))
        assert np.array_equal(states.layer(0), embedded.numpy())


def test_what_stands_where_is_told():
    some = texts()
    with hidden_states(model("llama"), some) as states:
        assert states.text_of.tolist() == [number for number, text in enumerate(some) for _ in text]
        chosen = states.text_of == 3
        assert np.array_equal(states.layer(2, chosen), states.layer(2)[chosen])
        assert np.array_equal(states.mapped(1), states.layer(1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_states_of_a_half_precision_model_are_float32_on_disk(dtype):
    lesioned = model("llama")
    lesioned.network.to(dtype)
    with hidden_states(lesioned, texts()) as states:
        layer = torch.from_numpy(states.layer(2))
        assert torch.equal(layer, layer.to(dtype).float())
        assert layer.abs().max() > 0


def test_a_block_that_gives_a_tuple_is_read_by_its_first_element():
    lesioned, some = model("llama"), texts()
    block = lesioned.anatomy.blocks[1].module
    plain = block.forward
    block.forward = lambda *args, **kwargs: (plain(*args, **kwargs), "more")
    following = lesioned.anatomy.blocks[2].module
    after = following.forward
    following.forward = lambda states, *args, **kwargs: after(states[0], *args, **kwargs)
    with hidden_states(lesioned, some) as found, hidden_states(model("llama"), some) as expected:
        for layer in range(found.layers):
            assert np.array_equal(found.layer(layer), expected.layer(layer))


def test_the_files_go_and_the_model_is_as_it_was(tmp_path):
    lesioned = model("llama")
    hooks = [module._forward_hooks | module._forward_pre_hooks for module in lesioned.network.modules()]
    with hidden_states(lesioned, texts(), tmp_path / "deep" / "down") as states:
        assert len(list(states.folder.iterdir())) == 4
        assert states.folder.is_relative_to(tmp_path)
    assert list((tmp_path / "deep" / "down").iterdir()) == []
    states.close()
    assert hooks == [module._forward_hooks | module._forward_pre_hooks for module in lesioned.network.modules()]


def test_memory_holds_one_layer_of_one_batch_and_not_the_spool():
    lesioned = model("llama")
    some = texts((64,) * 400)  # 25,600 tokens: 3.3 MB a layer, 13 MB in all
    hidden_states(lesioned, some[:4]).close()
    tracemalloc.start()
    try:
        with hidden_states(lesioned, some, batch_tokens=1024) as states:
            spooling = tracemalloc.get_traced_memory()[1]
            layer_bytes = states.tokens * states.width * 4
            assert sum(file.stat().st_size for file in states.folder.iterdir()) == 4 * layer_bytes
            # Token ids and their places are 24 bytes a token; a layer is 128.
            assert spooling < layer_bytes / 2
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            states.layer(1)
            assert tracemalloc.get_traced_memory()[1] - before < 1.1 * layer_bytes
    finally:
        tracemalloc.stop()


def test_states_that_are_not_finite_are_an_error_that_names_the_layer(tmp_path):
    lesioned, some = model("llama"), texts()
    lesioned.anatomy.blocks[1].module.mlp.down_proj.weight[0, 0] = torch.inf
    with pytest.raises(LesionError, match=r"layer 2 \(what block 1 gives\) are not finite"):
        hidden_states(lesioned, some, tmp_path)
    assert list(tmp_path.iterdir()) == []
    lesioned = model("llama")
    lesioned.network.model.embed_tokens.weight[some[3][0]] = torch.nan
    with pytest.raises(LesionError, match=r"layer 0 \(what enters block 0\) are not finite"):
        hidden_states(lesioned, some)


def test_what_stands_in_padding_may_be_anything():
    lesioned, some = model("llama"), texts((9, 3))
    # The padding repeats the first token of its row; here every later row place is poisoned after block 0.
    first = lesioned.anatomy.blocks[2].module
    plain = first.forward

    def poisoned(states, *args, **kwargs):
        given = plain(states, *args, **kwargs).clone()
        if given.shape[0] == 2:
            given[1, 3:] = torch.nan
        return given

    first.forward = poisoned
    with hidden_states(lesioned, some) as states:
        assert np.isfinite(states.layer(3)).all()


@pytest.mark.parametrize(("some", "match"), [([[5] * 257], "257 tokens"), ([[64]], "tokens beyond the 64")])
def test_texts_that_cannot_be_run_are_errors(some, match):
    with pytest.raises(LesionError, match=match):
        hidden_states(model("llama"), some)


def test_other_numbers_that_cannot_be_meant_are_errors(tmp_path, monkeypatch):
    lesioned, some = model("llama"), texts()
    with pytest.raises(UsageError, match="at least 1"):
        hidden_states(lesioned, some, batch_tokens=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(LesionError, match="cannot be kept in"):
        hidden_states(lesioned, some, tmp_path / "file")
    monkeypatch.setattr(hidden.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 1000})())
    with pytest.raises(LesionError, match=r"(B|bytes) free"):
        hidden_states(lesioned, some)


def test_a_batch_for_which_memory_does_not_suffice_is_halved():
    lesioned, some = model("llama"), texts()
    plain = lesioned.network.model.layers[1].forward

    def short(states, *args, **kwargs):
        if states.shape[0] > 2:
            raise torch.OutOfMemoryError("out of memory")
        return plain(states, *args, **kwargs)

    lesioned.network.model.layers[1].forward = short
    expected = one_by_one(model("llama"), some)
    with hidden_states(lesioned, some, batch_tokens=1000) as states:
        np.testing.assert_allclose(states.layer(3), expected[3], atol=1e-3)

    def never(states, *args, **kwargs):
        raise torch.OutOfMemoryError("out of memory")

    lesioned.network.model.layers[1].forward = never
    with pytest.raises(LesionError, match="even one text"):
        hidden_states(lesioned, some)


def test_a_watcher_hears_of_every_text():
    told = []
    watcher = SimpleNamespace(begin=lambda *about: told.append(about), answered=told.append, note=told.append)
    hidden_states(model("llama"), texts(), batch_tokens=14, watcher=watcher).close()
    assert told == [("tiny:llama", 6, 0, "texts"), 1, 1, 1, 2, 1]


def test_what_a_killed_process_left_is_swept_and_what_is_another_s_stays(tmp_path):
    place = tmp_path / "states"

    def killed():
        with HiddenStates(1, 3, [[1, 2]], folder=place) as states:
            shutil.copytree(states.folder, f"{states.folder}x")

    sweep(place)  # nothing there is fine
    killed()
    assert len(list(place.iterdir())) == 1
    sweep(place)
    assert not place.exists()
    killed()
    (place / "notes.txt").write_text("mine")
    sweep(place)
    assert [file.name for file in place.iterdir()] == ["notes.txt"]
