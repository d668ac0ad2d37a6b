"""Fixtures for all tests: where the shared files lie, tiny models, and shape checks switched on."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from checked import check
from noise import disturb, undisturbed

# A busy machine is no fault of what is tested.
settings.register_profile("lesion", deadline=None, max_examples=30)
settings.load_profile("lesion")

check("lesion")
check("lesion_labs")

disturb(float(os.environ.get("LESION_TEST_LOGIT_NOISE", "0")))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """While all is imported, nothing is looked through for garbage; and as it stays, nor at any training later on.

    What tests leave is looked through less often than Python does by itself, which takes a part of every test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests come first, so that none is left to one worker when the others have ended."""
    items.sort(key=lambda item: "golden" not in item.path.parts)


@pytest.fixture(autouse=True)
def quiet_where_the_same_bits_are_computed(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test marked `same_bits` computes the same thing twice, in batches of one shape: no noise on its logits."""
    with undisturbed() if request.node.get_closest_marker("same_bits") else nullcontext():
        yield


@pytest.fixture(scope="session", autouse=True)
def studies_of_few_items_go_on() -> Iterator[Callable[..., None]]:
    """Studies of tests have few items, so that most of them would end with their baseline; what stops them."""
    from lesion.core import baseline

    stop = baseline.stop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baseline, "stop", lambda *_: None)
        yield stop


@pytest.fixture(autouse=True)
def stops_where_marked(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, studies_of_few_items_go_on: Callable[..., None]
) -> None:
    """A test marked `stops` has studies that stop as they do for a user."""
    if request.node.get_closest_marker("stops"):
        monkeypatch.setattr("lesion.core.baseline.stop", studies_of_few_items_go_on)


@pytest.fixture(scope="session", autouse=True)
def proofs_are_short() -> Iterator[None]:
    """A proof that edits act is of two tokens, of which one is decoded: `core/test_proofs.py` has the whole ones.

    What only stands in for an engine decodes nothing, so that nothing can be proved of it.
    """
    from lesion.core import prove, run
    from lesion.engines.transformers.engine import TransformersEngine

    def proved(folder: object, name: str, engine: object, *others: object) -> None:
        if isinstance(engine, TransformersEngine) or type(engine).__module__.startswith("lesion."):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(prove, "TOKENS", 2)
                prove.prove(folder, name, engine, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "prove", proved)
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real benchmark files beside the project (or at LESION_SHARED); skips where it is absent."""
    place = Path(os.environ.get("LESION_SHARED", Path(__file__).parents[2] / "shared"))
    if not (place / "data").is_dir():
        pytest.skip(f"no shared data at {place}; set LESION_SHARED to run this test")
    return place


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the tests' own, so that nothing is read from the user's or written to it."""
    place = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LESION_CACHE", str(place))
        patch.delenv("LESION_CACHE_GIB", raising=False)
        yield place


@pytest.fixture(scope="session", autouse=True)
def no_training_looks_for_garbage() -> Iterator[None]:
    """Before a training all is looked through for garbage, which in a process of all tests takes longer than it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accelerate.utils.memory.clear_device_cache", lambda garbage_collection=False: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """Files are not forced to the disk: that is for a loss of power, and no test has one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr("lesion.core.database.SYNCHRONOUS", "OFF")
        yield


@pytest.fixture(scope="module")
def llama() -> object:
    """The tiny Llama, which is left as it is."""
    from tiny import model

    return model("llama")
