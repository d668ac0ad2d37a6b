"""What a model is, as names and values: for the terminal and for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lesion.models.matrices import weights_in

if TYPE_CHECKING:
    from lesion.models.model import Model

NO_LIMIT = 10**9  # a tokenizer without a limit states an astronomical one


def facts_of(model: Model) -> tuple[tuple[str, str], ...]:
    """Architecture, heads, neurons or experts, size, dtype, storage, device, context, prompt style, tied weights,
    fingerprint.
    """
    anatomy = model.anatomy
    architecture = type(model.network).__name__
    context = f"{model.context:,} tokens" if model.context < NO_LIMIT else "no stated limit"
    return (
        ("architecture", f"{architecture}, family {anatomy.family}" if anatomy.known else f"{architecture}, unknown"),
        ("blocks", f"{len(anatomy.blocks)} (0 to {len(anatomy.blocks) - 1})"),
        ("heads a block", _heads(model)),
        ("MLP a block", _mlps(model)),
        ("parameters", _parameters(model)),
        *((("weights stored", model.origin.storage),) if model.origin and model.origin.storage else ()),
        ("dtype", model.dtype_name),
        *((("weights stored", _stored(model)),) if model.quantisation is not None else ()),
        ("device", ", ".join(sorted({str(p.device) for p in model.network.parameters()}))),
        ("context", context),
        (
            "prompt style",
            "the model's own chat template" if model.has_chat_template else "plain text (it has no chat template)",
        ),
        ("tied weights", "; ".join(" = ".join(group) for group in anatomy.tied) or "none"),
        ("fingerprint", model.fingerprint),
    )


def _stored(model: Model) -> str:
    """The quantised storage, and which edits it leaves."""
    if model.anatomy.packed:
        return f"{model.quantisation}; edits of places only"
    return f"{model.quantisation}; dequantised when loaded, so every edit works; `lesion apply` needs --weights"


def _heads(model: Model) -> str:
    """Query heads, what each of them gives, and key-value heads where these are fewer; of every kind of block."""
    kinds: dict[str, None] = {}
    for block in model.anatomy.blocks:
        heads = None if block.attention is None else block.attention.heads
        if heads is None:
            kinds["not known; an attention can be edited as a whole"] = None
            continue
        groups = f" in {heads.groups} key-value groups" if heads.groups < heads.count else ""
        kinds[f"{heads.count} (0 to {heads.count - 1}) of size {heads.size}{groups}"] = None
    return "; ".join(kinds)


def _mlps(model: Model) -> str:
    kinds: dict[str, None] = {}
    for block in model.anatomy.blocks:
        mlp = block.mlp
        experts, neurons = (None, None) if mlp is None else (mlp.experts, mlp.neurons)
        units, noun = (experts, "experts") if experts is not None else (neurons, "neurons")
        numbers = None if units is None else f"{units.count:,} {noun} (0 to {units.count - 1:,})"
        kinds[numbers or "units not known; an MLP can be edited as a whole"] = None
    return "; ".join(kinds)


def _parameters(model: Model) -> str:
    """Total, per block, and in embeddings and head, where a tied tensor counts once."""
    total = weights_in(model.network)
    blocks = [weights_in(block.module) for block in model.anatomy.blocks]
    ends = (model.network.get_input_embeddings(), model.network.get_output_embeddings())
    seen = {id(p): p.numel() for end in ends if end is not None for p in end.parameters()}
    each = f"{min(blocks):,}" if min(blocks) == max(blocks) else f"{min(blocks):,} to {max(blocks):,}"
    return f"{total:,} in all; {each} a block; {sum(seen.values()):,} in embedding and head"
