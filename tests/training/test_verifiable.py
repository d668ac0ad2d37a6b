"""Reinforcement: the reward rises, a step is that of the formula, and where there is nothing to learn it ends."""

from dataclasses import dataclass, field

import pytest
import torch
from oracle import Interrupts
from safetensors.torch import load_file

from lesion.errors import LesionError, UsageError
from lesion.tasks.prompts import encode
from lesion.tasks.task import Answer, Item, Verdict
from lesion.training import verifiable
from lesion.training.resume import Progress, stored
from lesion.training.verifiable import Reinforcement, reinforce
from tiny import model

RECIPE = Reinforcement(steps=4, prompts=3, generations=4, learning_rate=1e-2)


@dataclass(frozen=True)
class Letters:
    """Say something of at most four characters; the judge counts its letters up to m, or does what it is told."""

    verdict: str = "even"
    name: str = "letters"
    kind: str = "generate"
    max_new_tokens: int = 4
    stop: tuple[str, ...] = field(default=())
    style: str = "raw"

    def load(self):
        return tuple(Item(f"i{k}", "abcdefghij"[: k % 5 + 1] + str(k), "x") for k in range(9))

    def judge(self, item, answer):
        if self.verdict == "unread":
            return Verdict(False, None)
        if self.verdict == "by item":
            return Verdict(item.id in ("i1", "i2"), answer.text)
        if self.verdict in ("right", "wrong"):
            return Verdict(self.verdict == "right", answer.text)
        return Verdict(sum("a" <= letter <= "m" for letter in answer.text) > 1, answer.text)


def weights(subject):
    return {name: tensor.clone() for name, tensor in subject.network.state_dict().items()}


def same(first, second):
    return all(torch.equal(tensor, second[name]) for name, tensor in first.items())


@pytest.fixture
def heard(monkeypatch):
    """What was asked and said in every step: prompts, completions (token ids), and rewards."""
    steps = []
    answer, reward = verifiable._Asker.answer, verifiable._Asker.reward

    def answered(self, texts):
        found = answer(self, texts)
        steps.append([found[0], found[1]])
        return found

    def rewarded(self, completions, **more):
        found = reward(self, completions, **more)
        steps[-1].append(found)
        return found

    monkeypatch.setattr(verifiable._Asker, "answer", answered)
    monkeypatch.setattr(verifiable._Asker, "reward", rewarded)
    return steps


def test_the_reward_rises(tmp_path):
    task = Letters()
    recipe = Reinforcement(steps=30, prompts=4, generations=8, learning_rate=1e-2)
    curve = reinforce(model("llama"), task, task.load(), recipe, tmp_path)
    first, last = curve[:3], curve[-3:]
    assert sum(p["reward"] for p in last) / 3 > sum(p["reward"] for p in first) / 3 + 0.3
    assert {"step", "reward", "reward_std", "length", "seconds", "mixed", "truncated"} <= curve[0].keys()
    assert all(0 < point["length"] <= 4 for point in curve)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_step_moves_along_the_gradient_of_the_formula(family, tmp_path, heard):
    task, subject, reference = Letters(), model(family), model(family)
    for network in (subject.network, reference.network):
        for module in network.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
    recipe = Reinforcement(steps=1, prompts=4, generations=6, temperature=2.5, learning_rate=1e-3)
    reinforce(subject, task, task.load(), recipe, tmp_path)
    ((asked, said, rewards),) = heard
    network = reference.network.requires_grad_(True)
    groups = torch.tensor(rewards).reshape(4, 6)
    advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()
    assert advantages.unique().numel() > 2
    loss = 0.0
    for prompt, completion, advantage in zip(asked, said, advantages, strict=True):
        logits = network(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1] / 2.5
        chances = logits.log_softmax(-1)[range(len(completion)), completion]
        loss = loss - advantage * chances.sum()
    (loss / sum(map(len, said))).backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    moments = load_file(tmp_path / "resume.safetensors")
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(10 * moments[f"exp_avg.{name}"], parameter.grad, atol=1e-5, rtol=1e-3)


def test_the_very_ids_of_the_prompts_are_asked_each_in_its_group_and_answers_differ(tmp_path, heard):
    task, subject = Letters(), model("llama")
    items = task.load()
    reinforce(subject, task, items, Reinforcement(steps=3, prompts=3, generations=4), tmp_path)
    known = {encode(subject, task, item) for item in items}
    seen = []
    for asked, said, _ in heard:
        groups = [asked[start : start + 4] for start in range(0, 12, 4)]
        assert all(group == [group[0]] * 4 for group in groups)
        seen += [tuple(group[0]) for group in groups]
        assert len(set(map(tuple, said))) > 6
        assert all(1 <= len(ids) <= 4 for ids in said)
    # Nine items, three a step: each once before any comes again.
    assert set(seen) == known
    assert len(seen) == len(known)


@pytest.mark.parametrize("choice", [{}, {"blocks": [0, 2], "rank": 2}], ids=["all parameters", "adapter of blocks"])
def test_an_interrupted_training_ends_in_the_same_weights_bit_for_bit(choice, tmp_path):
    task, whole, broken = Letters(), model("llama"), tmp_path / "broken"
    curve = reinforce(whole, task, task.load(), RECIPE, tmp_path / "whole", every=1, **choice)
    with pytest.raises(KeyboardInterrupt):
        reinforce(model("llama"), task, task.load(), RECIPE, broken, every=2, watcher=Interrupts(3), **choice)
    again = model("llama")
    resumed = reinforce(again, task, task.load(), RECIPE, broken, **choice)
    assert same(weights(whole), again.network.state_dict())
    assert [point["reward"] for point in resumed] == [point["reward"] for point in curve]
    assert [path.name for path in broken.rglob("*")] == ["resume.safetensors"]
    for other, differs in (({}, {"blocks": [1]}), ({"name": "others"}, choice)):
        with pytest.raises(UsageError, match=rf"differs in: .*{'task' if other else 'blocks'}.*--out"):
            reinforce(model("llama"), Letters(**other), task.load(), RECIPE, broken, **differs)


def test_where_steps_are_slow_a_state_is_written_before_its_turn(tmp_path, monkeypatch):
    task = Letters()
    for seconds, steps in ((0.0, 3), (3600.0, 0)):
        monkeypatch.setattr("lesion.training.trainers.SECONDS", seconds)
        place = tmp_path / str(seconds)
        with pytest.raises(KeyboardInterrupt):
            reinforce(model("llama"), task, task.load(), RECIPE, place, every=100, watcher=Interrupts(2))
        state = place / "resume.safetensors"
        assert (stored(state)["step"] if state.exists() else 0) == steps


def test_only_the_chosen_blocks_change_and_of_an_adapter_only_their_linear_layers(tmp_path):
    task = Letters()
    for rank, ending in ((None, ".weight"), (2, "_proj.weight")):
        subject = model("llama")
        before, modules = weights(subject), list(subject.network.modules())
        reinforce(subject, task, task.load(), RECIPE, tmp_path / str(rank), blocks=[0, 2], rank=rank)
        moved = {name for name, value in subject.network.state_dict().items() if not torch.equal(value, before[name])}
        inside = {name for name in before if name.startswith(("model.layers.0.", "model.layers.2."))}
        assert moved == {name for name in inside if name.endswith(ending)}
        assert list(subject.network.modules()) == modules


def test_the_network_and_its_tokenizer_come_back_as_they_were(tmp_path):
    task, subject = Letters(), model("llama")
    own = set(vars(subject.network))
    reinforce(subject, task, task.load(), RECIPE, tmp_path)
    assert set(vars(subject.network)) == own
    assert not subject.network.training
    assert not any(p.requires_grad for p in subject.network.parameters())
    assert subject.tokenizer.pad_token is None
    assert subject.network.config.pad_token_id is None
    assert subject.network.generation_config.pad_token_id is None


@pytest.mark.parametrize(
    ("opened", "said", "right"), [(True, "no m</think>abc", 1), (True, "abc", 0), (False, "abc", 1)]
)
def test_only_the_final_answer_is_judged_and_endless_thinking_is_wrong(opened, said, right, monkeypatch, tmp_path):
    @dataclass(frozen=True)
    class Whole(Letters):
        def judge(self, item, answer):
            return Verdict(answer.text == "abc", answer.text)

    task, subject = Whole(), model("llama")
    monkeypatch.setattr(verifiable, "opening", lambda tokenizer, prompt: "<think>" if opened else "")
    recipe = Reinforcement(steps=1, prompts=1, generations=2)
    asker = verifiable._Asker(subject, task, task.load()[:1], [(1, 2)], recipe, 4, Progress(tmp_path, {}, {}))
    asker._answers = [(task.load()[0], asker._whole(0, Answer(said)))] * 2
    assert asker.reward([said] * 2) == [right, right]


# -- nothing to learn


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        ("right", "all 32 answers were right: choose harder items"),
        ("wrong", "all 32 answers were wrong: choose easier items"),
        ("unread", "in none of 32 answers could the judge of letters read anything"),
        ("by item", "right each time or wrong each time"),
    ],
)
def test_a_reward_that_is_constant_ends_the_training_after_eight_steps(verdict, message, tmp_path):
    task, subject = Letters(verdict), model("llama")
    before = weights(subject)
    recipe = Reinforcement(steps=20, prompts=2, generations=2, learning_rate=1e-2)
    with pytest.raises(LesionError, match=f"GRPO has nothing to learn from letters.*{message}"):
        reinforce(subject, task, task.load(), recipe, tmp_path)
    assert same(before, subject.network.state_dict())


# -- what cannot be


def test_tasks_that_generate_nothing_and_no_items_are_refused(tmp_path):
    task = Letters()
    with pytest.raises(UsageError, match="of kind choose"):
        reinforce(model("llama"), Letters(kind="choose"), task.load(), RECIPE, tmp_path)
    with pytest.raises(UsageError, match="no items"):
        reinforce(model("llama"), task, [], RECIPE, tmp_path)
