"""The contract of an engine on vLLM: edits are made and undone in place while it runs, one batch holds many of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, Edit, of_places, of_replacements, of_spectra, of_weights
from lesion.edits.table import Written, factors, unit_factors
from lesion.engines.checking import check_requests, ends_of
from lesion.engines.endings import StopStrings
from lesion.engines.engine import Request, Response
from lesion.engines.transformers.memory import ROWS_ON_ACCELERATOR, rows_that_fit
from lesion.engines.transformers.sequence import ActiveRequest
from lesion.engines.vllm.building import refused, start
from lesion.engines.vllm.guard import Kind, control_of, kinds_of
from lesion.engines.vllm.jobs import Job, Jobs
from lesion.engines.vllm.weights import edited_on, place_of, tails_of, touched, without_matrices
from lesion.engines.vllm.wishes import Look, looks, scored
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.units import Slices

# Tokens of the prompt by which vLLM and the network here are compared (keys and values of 128 and more might be kept),
# how many next tokens, and by how many nats they may be apart: in half precision, in float32, and in float32 where the
# logits of attention are capped, which some of transformers' kernels leave out.
TRIED, LIKELY, NATS = 160, 20, (1.0, 0.01, 0.5)
# By which share of what an edit changes they may be further apart under it, and by how many nats.
SHARE, SLACK = 0.2, (0.1, 1e-3)


class VllmEngine:
    """Answers requests with a model that vLLM runs.

    Scaled blocks, branches, heads, key-value groups, neurons and experts are gates: hooks in vLLM's workers multiply
    what belongs to each token of the flattened batch by the factor of its request's edit, so that a sweep over all of
    them is one job. Scaled matrices, edits of weights, and truncations, are made one after another: computed on the
    network here, handed to the workers, taken back. No answer counts before the effect guard
    (`lesion.engines.vllm.guard`) has seen that edits of its kind act as they do here. One iterator of answers at a
    time.

    In float32 answers agree with those of the transformers engine token for token, sampled ones too; in half precision
    the two round differently.

    Args:
        model: what answers; its network stays where it is, best on the CPU, and vLLM loads the same weights.
        batch_size: requests at work at once; `auto` starts from what memory there is.
        tensor_parallel: devices (on a CPU: processes) that every matrix is split over.
        in_process: compute in this process; None: where possible.
        settings: further ones, for vLLM's `EngineArgs`.
    """

    def __init__(
        self,
        model: Model,
        batch_size: int | str = "auto",
        *,
        tensor_parallel: int = 1,
        in_process: bool | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.model = model
        # Beside a GPU the network here lies on the CPU and says nothing about the free memory; vLLM finds that out.
        most = ROWS_ON_ACCELERATOR if torch.cuda.is_available() else rows_that_fit(model)
        self.batch_size = most if batch_size == "auto" else int(batch_size)
        self._ends = ends_of(model)
        self._columns: dict[Edit, int] = {BASELINE: 0}
        self._proved: set[Kind] = set()
        self.description = "vLLM"
        self._busy = False
        self._running = start(
            model, self.batch_size, tensor_parallel=tensor_parallel, in_process=in_process, settings=settings or {}
        )
        self.jobs = Jobs(self._running, self.batch_size, self._ends)
        try:
            end = min(self._ends, default=-1)
            where = self.calls("begin", tails_of(model), model.name, end)[0]
            self._try()
        except BaseException:
            self.close()
            raise
        spread = f", {tensor_parallel} × tensor parallel" if tensor_parallel > 1 else ""
        self.description = f"vllm {self._running.version}, {model.dtype_name}, {where}{spread}"

    def __enter__(self) -> VllmEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of vLLM and its memory; more than once does no harm."""
        self._running.close()

    @property
    def closed(self) -> bool:
        """Whether vLLM is closed."""
        return self._running.engine is None

    def answer(self, requests: Iterable[Request]) -> Iterator[Response]:
        """Responses as they are finished, in any order; every request gets exactly one."""
        waiting = list(requests)
        # Scaled matrices as multiplied weights: vLLM fuses several into one.
        edits = {edit: without_matrices(edit, self.model) for edit in {request.edit for request in waiting}}
        waiting = [replace(request, edit=edits[request.edit]) for request in waiting]
        check_requests(self.model, waiting)
        if self._busy:
            raise LesionError(
                f"The engine of {self.model.name} is at work on other requests; finish or close those answers first."
            )
        self._busy = True
        try:
            groups: dict[Written, list[Request]] = {((), ()): []}
            self.know(of_places(request.edit) for request in waiting)  # refuses what cannot be
            for request in waiting:
                groups.setdefault((of_weights(request.edit), of_spectra(request.edit)), []).append(request)
            for written in groups:
                for matrix in touched(self.model, *written):
                    place_of(self.model, matrix)  # likewise
            for kind in dict.fromkeys(kind for request in waiting for kind in kinds_of(request.edit)):
                if kind not in self._proved:
                    self._try(kind)
                    self._proved.add(kind)
            stops = StopStrings.of(self.model.tokenizer, waiting)
            for written, group in groups.items():
                with edited_on(self, *written) if any(written) else nullcontext():
                    for response in self._group(group, stops):
                        yield replace(response, engine=self.description)
        finally:
            self._busy = False

    def calls(self, method: str, *arguments: object) -> list[Any]:
        """What a method of `lesion.engines.vllm.worker.Watch` gives in each worker."""
        return self._running.calls(method, *arguments)

    def know(self, edits: Iterable[Compose]) -> None:
        """Tell the workers of edits of places that are new to them; refuses replaced contributions, and places that the
        model does not have.
        """
        new = [edit for edit in dict.fromkeys(edits) if edit not in self._columns]
        for part in (part for edit in new for part in of_replacements(edit)):
            raise UsageError(
                f"'{part}' replaces what a place adds to the residual stream, and vLLM's gates only scale it; use"
                " --engine transformers."
            )
        table, units = factors(new, self.model.anatomy), []
        for site, of_site in unit_factors(new, self.model.anatomy, {}).items():
            numbers = (of_site.columns.tolist(), of_site.numbers.tolist(), of_site.factors.tolist())
            if isinstance(site, Slices):
                units.append([*place_of(self.model, site.matrix), site.count, site.size, *numbers])
            else:
                units.append([site.layer, "", site.count, 0, *numbers])
        if new:
            self.calls("gates.add", table.permute(2, 0, 1).tolist(), units)
            self._columns |= {edit: len(self._columns) + index for index, edit in enumerate(new)}

    def column(self, places: Compose) -> int:
        """The number by which the workers know an edit of places."""
        self.know([places])
        return self._columns[places]

    def _try(self, kind: Kind | None = None) -> None:
        """Compute a prompt here and there: some models vLLM refuses only then, or computes otherwise.

        With a kind of edits, under a control edit too, and once more without it.
        """
        model, here, there = self.model, list[Tensor](), list[tuple[float, ...]]()
        known = model.network.get_input_embeddings().num_embeddings
        prompt = tuple(7919 * index % known for index in range(1, min(TRIED, model.context - 1) + 1))
        for edit in [BASELINE] if kind is None else [BASELINE, control_of(model, kind), BASELINE]:
            with edited_on(self, of_weights(edit), ()):
                here.append(_log_probabilities(model, prompt, of_places(edit)))
                likely = here[0].topk(min(LIKELY, len(here[0]))).indices
                look = Look(prompt, len(prompt) - 1, (tuple(likely.tolist()),))
                try:
                    (job,) = self.jobs.run([Job(prompt, self.column(of_places(edit)), look=look, limit=2)])
                except LesionError as error:
                    raise (refused(model.name, error.__cause__ or error) if kind is None else error) from error
                there.append(job.lookups[0].scores)
        expected = torch.stack([each[likely] for each in here])
        given = torch.tensor(there, dtype=torch.float64)
        apart = (given - expected).abs().amax(1).tolist()
        slack = SLACK[model.dtype == torch.float32]
        capped = getattr(model.network.config.get_text_config(), "attn_logit_softcapping", None) is not None
        if not apart[0] <= NATS[0 if model.dtype != torch.float32 else 1 + capped]:
            raise LesionError(
                f"vLLM does not compute what the network of {model.name} computes here: after a prompt of"
                f" {len(prompt)} tokens, log-probabilities are up to {apart[0]:.3g} nats apart. Has one of the two"
                f" other weights? Use --engine transformers."
            )
        if not float((given[-1] - given[0]).abs().max()) <= slack:
            raise LesionError(
                f"The effect guard stops this study on {self.description}: after a control edit ({kind}) was taken"
                f" back, log-probabilities of {model.name} are not those of before. Use --engine transformers."
            )
        for differing in apart[1:2]:
            effect = float((expected[1] - expected[0]).abs().max())
            if not differing <= apart[0] + SHARE * effect + slack:
                raise LesionError(
                    f"The effect guard stops this study on {self.description}: a control edit ({kind}) changes"
                    f" log-probabilities of {model.name} by up to {effect:.3g} nats, and those of vLLM are up to"
                    f" {differing:.3g} nats from what they should be then. Use --engine transformers."
                )

    def _group(self, group: Sequence[Request], stops: Mapping[str, StopStrings]) -> Iterator[Response]:
        missing: dict[str, int] = {}
        parts: dict[str, list[Job]] = {}
        for job in self.jobs.run(job for request in group for job in self._jobs(request, stops, missing)):
            if job.row is not None:
                yield job.row.response(job.finish, self.model)
                continue
            request = job.request
            assert request is not None
            done = parts.setdefault(request.key, [])
            done.append(job)
            if len(done) == missing[request.key]:
                del parts[request.key]
                yield scored(request, [part.lookups for part in sorted(done, key=lambda job: job.part)], self.model)

    def _jobs(self, request: Request, stops: Mapping[str, StopStrings], missing: dict[str, int]) -> Iterator[Job]:
        column = self.column(of_places(request.edit))
        if request.choices or request.tokens:
            wanted = looks(request)
            missing[request.key] = len(wanted)
            for part, look in enumerate(wanted):
                yield Job(look.tokens, column, look=look, request=request, part=part)
            return
        yield Job(request.prompt, column, ActiveRequest.of(self.model, request, column, stops[request.key]))


@torch.inference_mode()
def _log_probabilities(model: Model, prompt: Sequence[int], edit: Edit) -> Tensor:
    with applied(model, edit):
        logits = model.network(torch.tensor([prompt], device=model.device)).logits[0, -1]
    return logits.double().log_softmax(-1).cpu()
