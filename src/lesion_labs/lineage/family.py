"""A family of the lineage in a folder: which member lies where, who its parent is, and training them in order."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from lesion.bounds import check
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model, configuration, load
from lesion.models.names import device_of
from lesion.models.source import bundled, find
from lesion.progress import Silent, Watcher
from lesion_labs.lineage import shipping
from lesion_labs.lineage.base import FAMILIES, check_family, recipe_of
from lesion_labs.lineage.checkpoints import DOZEN, claim, schedule
from lesion_labs.lineage.lessons import RECIPES
from lesion_labs.lineage.members import EXAMINED, family_of, train_base, train_child
from lesion_labs.lineage.shipping import Facts
from lesion_labs.lineage.stages import ALL, STAGES, refuse_stage
from lesion_labs.lineage.tokenizer import give_form


def train(
    out: Path,
    stage: str = "base",
    *,
    family: str | None = None,
    seed: int = 0,
    base: str | None = None,
    groups: int | None = None,
    device: str = "auto",
    checkpoints: int = DOZEN,
    watcher: Watcher | None = None,
) -> list[Path]:
    """Train a stage of the lineage, or all of them, and what it needs that is not there.

    A stage's model is written to `out/STAGE/model`. A child's base is `out/base/model` where that is there, else
    `base`, else with seed 0 the bundled base of the family. The teacher of the distilled child is `out/rlvr/model`,
    which is trained first where it is missing. A finished model is not trained again; an interrupted training goes on.

    Args:
        family: one of `base.FAMILIES`; that of `base` by default, else llama.
        seed: of weights, documents, questions and their order.
        base: a model to take as the base of the children, as for `lesion.load`.
        groups, checkpoints: of the base, as for `train_base`.
    """
    refuse_stage(stage)
    if stage == "base" and base is not None:
        raise UsageError(f"A base is trained from scratch, and {base} would not be looked at; leave out --base.")
    if seed < 0:
        raise UsageError(f"A seed is a whole number from 0, not {seed}.")
    check(groups=groups, checkpoints=checkpoints, seed=seed)
    watcher = watcher or Silent()
    family = _family(family, base)
    chosen = str(device_of(device))
    schedule(1, checkpoints)  # refuses fewer than none
    claim(out, "lineage")
    if stage == "base" or (stage == ALL and base is None):
        place = out / "base"
        if stage == "base" or shipping.facts(place / "model") is None:
            recipe = recipe_of(family, seed=seed, groups=groups)
            train_base(place, recipe, device=chosen, checkpoints=checkpoints, watcher=watcher)
        if stage == "base":
            return [place / "model"]
    parent = _parent(out, family, seed, base, chosen, watcher)
    trained = [out / "base" / "model"] if stage == ALL and base is None else []
    for name in STAGES[1:]:
        if name == stage or stage == ALL or (name, stage) == ("rlvr", "distill"):
            folder = _train_child(name, parent, out, seed, chosen, watcher)
            trained += [folder] if stage in (name, ALL) else []
    return trained


def finished(out: Path, base: str | None = None) -> list[Facts]:
    """The facts of the finished members in a folder, in the order of training; before them those of a local or bundled
    `base`, where none was trained in `out`."""
    members = [shipping.facts(out / stage / "model") for stage in STAGES]
    if base is not None and members[0] is None and (source := find(base)).local:
        members[0] = shipping.facts(Path(source.place))
    return [facts for facts in members if facts is not None]


def _train_child(name: str, parent: Model, out: Path, seed: int, device: str, watcher: Watcher) -> Path:
    """Train a child, unless it is there already."""
    place, recipe = out / name, RECIPES[name](seed=seed)
    finished = shipping.facts(place / "model")
    if finished is None:
        tutor = load(out / "rlvr" / "model", dtype="float32", device=device) if name == "distill" else None
        return train_child(parent, place, recipe, tutor=tutor, examined=out / EXAMINED, watcher=watcher)
    base = finished.get("parent", {}).get("fingerprint")
    if base != parent.fingerprint or finished.get("recipe") != asdict(recipe):
        raise LesionError(
            f"{place / 'model'} was trained from another base or by another recipe; give another --out, or delete"
            " that folder."
        )
    watcher.note(f"{place / 'model'} is there already")
    return place / "model"


def _family(family: str | None, base: str | None) -> str:
    """The family that is named, or that of the base."""
    if family is not None:
        check_family(family)
    if base is None:
        return family or next(iter(FAMILIES))
    kind = str(configuration(base).model_type)
    if kind not in FAMILIES:
        raise UsageError(f"{base} is a {kind}, and the lineage has {' and '.join(FAMILIES)}; give another --base.")
    if family not in (None, kind):
        raise UsageError(f"{base} is of the family {kind}, not {family}; give --family {kind}, or another --base.")
    return kind


def _parent(out: Path, family: str, seed: int, base: str | None, device: str, watcher: Watcher) -> Model:
    """The base whose children are trained, in the form of the base."""
    own = out / "base" / "model"
    if shipping.facts(own) is not None:
        if base is not None:
            watcher.note(f"the base is {own}, which was trained here; {base} is left aside")
        source = str(own)
    elif base is not None:
        source = base
    elif seed == 0 and f"{family}-base" in bundled():
        source = f"bundled:{family}-base"
        watcher.note(f"the base is {source}, since none was trained in {out}")
    else:
        raise UsageError(
            f"There is no base in {own} to train a child of: train it first (--stage base, or all, with the same --out"
            " and --seed), or give one with --base."
        )
    parent = load(source, dtype="float32", device=device)
    if family_of(parent) != family:
        raise UsageError(
            f"{source} is of the family {family_of(parent)}, not {family}; give --family {family_of(parent)}, or"
            " another --out."
        )
    give_form(parent.network, parent.tokenizer, "base")
    return parent
