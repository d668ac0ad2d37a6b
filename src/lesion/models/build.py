"""Build: the modules and parameters that a network consists of, to notice later that it is not the same network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

from lesion.errors import LesionError


@dataclass(frozen=True, eq=False)
class Build:
    """What a network was built of when it was taken apart. Values, device and dtype may change, the rest may not.

    Attributes:
        modules: by name, every module, its class, and what it was compiled to.
        parameters: by name, the shape of every parameter and the first name of the memory in which it lies.
        forwards: by name, what was put in place of the forward of a module's class.
    """

    modules: dict[str, tuple[nn.Module, type, Any]]
    parameters: dict[str, tuple[tuple[int, ...], str]]
    forwards: dict[str, Any]

    @classmethod
    def of(cls, network: nn.Module) -> Build:
        """The build of a network as it is now."""
        modules = {
            name: (part, type(part), getattr(part, "_compiled_call_impl", None))
            for name, part in network.named_modules()
        }
        first: dict[object, str] = {}
        parameters = {}
        for name, parameter in network.named_parameters(remove_duplicate=False):
            plain = type(parameter) is nn.Parameter and not parameter.is_meta
            memory = (plain and parameter.data_ptr()) or id(parameter)
            parameters[name] = (tuple(parameter.shape), first.setdefault((memory, parameter.shape), name))
        forwards = {name: vars(part)["forward"] for name, part in network.named_modules() if has_own_forward(part)}
        return cls(modules, parameters, forwards)

    def refuse_another(self, network: nn.Module, name: str) -> None:
        """Refuse a network, called `name`, whose modules were replaced, added or removed, or tied in another way."""
        now = Build.of(network)
        if now.modules == self.modules and now.parameters == self.parameters:
            return
        refuse_computed_weights(network, name)
        raise LesionError(
            f"{name} is not built as it was when it was loaded ({self._difference(now)}), so edits would not reach what"
            f" runs. Take the network apart again: lesion.models.load.wrap(network, tokenizer, {name!r})."
        )

    def _difference(self, now: Build) -> str:
        for name in (*self.modules, *now.modules):
            old, new = self.modules.get(name), now.modules.get(name)
            what = name or "the network"
            if old is None or new is None:
                return f"{what} was {'added' if old is None else 'removed'}"
            if old != new:
                return f"{what} was replaced or changed: a {old[1].__name__} then, a {new[1].__name__} now"
        for name in (*self.parameters, *now.parameters):
            before, after = self.parameters.get(name), now.parameters.get(name)
            if before is None or after is None:
                return f"the parameter {name} was {'added' if before is None else 'removed'}"
            if before[0] != after[0]:
                return f"{name} had the shape {before[0]} and has {after[0]}"
            if before[1] != after[1]:
                return f"{name} is tied to another parameter, or no more"
        raise AssertionError("two builds are different and agree in everything")


def has_own_forward(module: nn.Module) -> bool:
    """Whether something was put in place of the forward of a module's class; what accelerate puts there calls it."""
    own = vars(module).get("forward")
    return (
        own is not None and not hasattr(module, "_hf_hook") and getattr(own, "__func__", None) != type(module).forward
    )


def refuse_computed_weights(network: nn.Module, name: str) -> None:
    """Refuse a network in which a module does not compute with the plain weights that it shows."""
    for path, part in network.named_modules():
        where = path or type(part).__name__
        if getattr(part, "_compiled_call_impl", None) is not None or hasattr(part, "_orig_mod"):
            raise LesionError(
                f"{where} of {name} is compiled (torch.compile), and edits do not reach compiled code. Edit the network"
                " as it was before, and compile nothing of it."
            )
        if any(base.__module__.partition(".")[0] == "peft" for base in type(part).__mro__):
            raise LesionError(
                f"{name} has an adapter of PEFT that is not merged ({where}), so its matrices are not what it computes"
                " with. Merge it first, network = peft_model.merge_and_unload(), and take that apart:"
                f" lesion.models.load.wrap(network, tokenizer, {name!r})."
            )
        # Old weight normalisation (weight_g, weight_v) and pruning (weight_orig) leave a `weight` that is no parameter.
        source = any(key.startswith("weight_") for key in part._parameters) and "weight" not in part._parameters
        if parametrize.is_parametrized(part) or (source and isinstance(getattr(part, "weight", None), Tensor)):
            raise LesionError(
                f"{where} of {name} computes its weights from other parameters in every pass (a parametrization, weight"
                " normalisation or pruning), where edits would be overwritten. Make them plain weights first, with"
                " torch.nn.utils.parametrize.remove_parametrizations, remove_weight_norm or prune.remove."
            )
