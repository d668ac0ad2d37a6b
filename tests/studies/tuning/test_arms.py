"""From names of arms to blocks and parameters."""

import pytest
from tuning import study

from lesion.studies.tuning.report import Drops
from lesion.studies.tuning.study import label
from lesion.studies.tuning.training import arms_of, budget_of, random_pool

DROPS = (0.1, 0.5, 0.1)


def known(drops, critical=()):
    return drops and Drops(drops=drops, critical=critical, items=6, source=None)


def of(llama, name, drops=DROPS, seed=0, **values):
    (arm,) = arms_of(study(arms=[name], **values), llama, seed, known(drops))
    return arm


def parameters(llama, *blocks):
    return sum(p.numel() for block in blocks for p in llama.network.model.layers[block].parameters())


def test_critical_blocks_have_the_largest_drops_and_least_critical_ones_the_smallest(llama):
    assert of(llama, "critical").blocks == (1,)
    assert of(llama, "critical", budget=2).blocks == (0, 1)  # of the equal drops of 0 and 2 the earlier
    assert of(llama, "least").blocks == (2,)
    assert of(llama, "least", budget=2).blocks == (0, 2)
    assert of(llama, "critical", drops=(0.0, -0.2, 0.3)).blocks == (2,)
    assert of(llama, "least", drops=(0.0, -0.2, 0.3)).blocks == (1,)


def test_random_blocks_are_a_function_of_the_seed_and_every_block_comes_up(llama):
    drawn = [of(llama, "random", drops=None, seed=seed).blocks for seed in range(30)]
    assert drawn == [of(llama, "random", drops=None, seed=seed).blocks for seed in range(30)]
    assert {block for blocks in drawn for block in blocks} == {0, 1, 2}
    assert all(len(set(of(llama, "random", drops=None, seed=seed, budget=2).blocks)) == 2 for seed in range(10))


def test_random_blocks_are_none_of_the_critical_where_enough_others_are_left(llama):
    def drawn(critical, budget):
        worth = known(DROPS, critical)
        arms = [arms_of(study(arms=["random"], budget=budget), llama, seed, worth)[0] for seed in range(30)]
        return {arm.blocks for arm in arms}

    assert drawn((1,), 1) == {(0,), (2,)}
    assert drawn((1,), 2) == {(0, 2)}
    # With one block left, two cannot be drawn from what is left.
    assert drawn((0, 1), 2) == {(0, 1), (0, 2), (1, 2)}
    assert random_pool(8, 2, (0, 2, 5, 6, 7)) == (1, 3, 4)
    assert random_pool(8, 4, (0, 2, 5, 6, 7)) == tuple(range(8))


def test_blocks_in_full_have_all_their_numbers(llama):
    assert of(llama, "critical").parameters == parameters(llama, 1)
    everything = of(llama, "all")
    assert (everything.blocks, everything.rank, everything.parameters) == ((0, 1, 2), None, parameters(llama, 0, 1, 2))
    assert of(llama, "0,2").blocks == (0, 2)


def test_adapters_on_all_blocks_train_as_many_numbers_as_the_budget_has_and_never_more(llama):
    # By hand: seven matrices a block, a pair of thin factors on each.
    shapes = [(32, 32), (16, 32), (16, 32), (32, 32), (48, 32), (48, 32), (32, 48)]
    of_rank = 3 * sum(out + into for out, into in shapes)
    arm = of(llama, "all-adapter")
    assert arm.blocks == (0, 1, 2)
    assert arm.parameters == arm.rank * of_rank <= parameters(llama, 1)
    assert (arm.rank + 1) * of_rank > parameters(llama, 1)
    # With more to spend, the rank of the smallest matrix is the end.
    assert of(llama, "all-adapter", budget=3).rank == 16 > 0


def test_an_adapter_stands_in_for_named_blocks_and_not_for_all_in_full(llama):
    arm = of(llama, "1", adapter=2)
    shapes = [(32, 32), (16, 32), (16, 32), (32, 32), (48, 32), (48, 32), (32, 48)]
    assert (arm.rank, arm.parameters) == (2, 2 * sum(out + into for out, into in shapes))
    named, full = arms_of(study(arms=["1", "all-full"], adapter=2), llama, 0, known(DROPS))
    assert (named.rank, full.rank) == (2, None)


@pytest.mark.parametrize(
    ("budget", "blocks", "meant"), [("25%", 8, 2), ("25%", 3, 1), ("25%", 1, 1), ("50%", 7, 3), (5, 8, 5)]
)
def test_a_share_is_rounded_down_and_is_at_least_one_block(budget, blocks, meant):
    assert budget_of(study(budget=budget), blocks) == meant


def test_every_arm_has_a_name_in_words():
    assert [label(name) for name in ("least", "all-full", "0-3,7", "5")] == [
        "least critical blocks",
        "all blocks (full)",
        "blocks 0-3,7",
        "block 5",
    ]
