# ruff: noqa
# fmt: off
"""The Python functions of studies, each made from its method; of a method from another package too, by its command."""

from collections.abc import Mapping, Sequence
from lesion.core.result import StudyResult
from lesion.edits.edit import Edit
from lesion.edits.files.artefact import EditFile
from lesion.engines.config import EngineChoice
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.studies.ablation.report import AblationResult
from lesion.studies.check.report import CheckResult
from lesion.studies.comparison.report import ComparisonResult
from lesion.studies.drift.report import DriftResult
from lesion.studies.effects.report import EffectsResult
from lesion.studies.interaction.report import InteractionResult
from lesion.studies.isolation.report import EvaluationResult, IsolationResult
from lesion.studies.overlay.report import OverlayResult
from lesion.studies.patching.report import PatchingResult
from lesion.studies.search.report import SearchResult
from lesion.studies.truncation.report import TruncationResult
from lesion.studies.tuning.report import TuningResult
from lesion.tasks.task import Task
from pathlib import Path
from typing import Any, Literal

def check(
    model: str | Model | Mapping[str, Any],
    tasks: str | Task | Mapping[str, Any] | Sequence[str | Task | Mapping[str, Any]],
    *,
    items: int | Literal['all'] = 10,
    prompt_style: str | None = None,
    thinking: Literal['on', 'off', 'auto'] | None = 'auto',
    system: str | None = None,
    template_arguments: str | Sequence[str] | None = None,
    level: float = 0.95,
    batch_size: int | Literal['auto'] = 'auto',
    device: str = 'auto',
    seed: int = 0,
    dtype: Literal['auto', 'float32', 'bfloat16', 'float16'] = 'auto',
    engine: Literal['transformers', 'vllm'] | EngineChoice | None = 'transformers',
    temperature: float = 0.0,
    top_p: float = 1.0,
    max_new_tokens: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_loops: int | None = None,
    thinking_tokens: int | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> CheckResult:
    """Show how a model is asked and what it answers, before a study: ten questions a task, unedited.

    Args:
        model: A source for `load`, or a loaded model.
        tasks: Task: gsm8k, svamp, math500, triviaqa, TASK:PATH, questions.jsonl, primer:arithmetic, …
        items: Number of questions per task, drawn with the seed.
        prompt_style: Prompt style: auto, raw, chat, plain, or a paper's; default: the task's own.
        thinking: Whether a model thinks before it answers: on, off, or auto, the chat template's own way.
        system: System prompt of a chat; default: the chat template's own.
        template_arguments: Argument of the chat template: KEY=VALUE.
        level: Confidence level of the intervals.
        batch_size: Number of sequences decoded together, or auto.
        device: Device: auto, cpu, cuda, cuda:1, …
        seed: Random seed: of the draw of items, of sampling, and of all else that is drawn.
        dtype: Data type of the weights: auto, float32, bfloat16 or float16.
        engine: `transformers` or `vllm`; or `EngineChoice(workers=2)`, which says too on what it runs.
        temperature: Sampling temperature; 0 is greedy.
        top_p: Nucleus (top-p) of sampling.
        max_new_tokens: Maximum length of an answer in tokens; default: the task's own.
        stop: Text that ends an answer, \\n for a line break; default: the task's own.
        stop_loops: End an answer that repeats the same piece N times in a row (approximate; off by default).
        thinking_tokens: Maximum length of the thinking in tokens; there it is closed, and the model answers. Default: no limit.
        out: Folder of the study; what lies there already is not evaluated again. By default a temporary one, removed when Python ends.
        progress: True shows a bar and notes, False nothing; by default a notebook and a terminal show them, a log does not.
        watcher: Receives progress and notes in place of a bar (`lesion.Watcher`).

    Example:
        >>> result = lesion.check("bundled:llama-instruct", "primer:arithmetic")
        >>> result.verdict, result.table[["task", "style", "accuracy"]]

    Raises:
        UsageError: a task or prompt style does not exist, or the model has no chat template for it.
        LesionError: the model cannot be loaded, or a prompt does not fit.
    """

def ablate(
    model: str | Model | Mapping[str, Any] | Sequence[str | Model | Mapping[str, Any]],
    tasks: str | Task | Mapping[str, Any] | Sequence[str | Task | Mapping[str, Any]],
    *,
    unit: Literal['block', 'attention', 'mlp', 'head', 'group', 'neuron', 'expert', 'matrix'] | Sequence[Literal['block', 'attention', 'mlp', 'head', 'group', 'neuron', 'expert', 'matrix']] = 'block',
    layers: str | int | Sequence[int] = 'all',
    factor: float | Sequence[float] = 0.0,
    replace: Literal['mean', 'position', 'resample', 'optimal'] | Sequence[Literal['mean', 'position', 'resample', 'optimal']] = (),
    draws: int = 1,
    stop_when: Literal['decided'] | None = None,
    stop_rule: Literal['closed e-BH', 'e-Holm'] | None = None,
    effect: float | None = None,
    screen: bool | None = None,
    anyway: bool = False,
    screen_top: int | None = None,
    early_answers: int | Sequence[int] = (),
    revisions: str | Sequence[str] = (),
    prompt_style: str | None = None,
    thinking: Literal['on', 'off', 'auto'] | None = 'auto',
    system: str | None = None,
    template_arguments: str | Sequence[str] | None = None,
    level: float = 0.95,
    batch_size: int | Literal['auto'] = 'auto',
    device: str = 'auto',
    items: int | Literal['all'] = 100,
    seed: int = 0,
    dtype: Literal['auto', 'float32', 'bfloat16', 'float16'] = 'auto',
    engine: Literal['transformers', 'vllm'] | EngineChoice | None = 'transformers',
    temperature: float = 0.0,
    top_p: float = 1.0,
    max_new_tokens: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_loops: int | None = None,
    thinking_tokens: int | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> AblationResult:
    """Ablate one block at a time and measure, with intervals, what each task loses.

    Args:
        model: A source for `load`, or a loaded model; or a list of these.
        tasks: Task: gsm8k, svamp, math500, triviaqa, TASK:PATH, questions.jsonl, primer:arithmetic, …
        unit: Part of each block to edit: block, attention or mlp; or each head, group (key-value group), matrix, expert or neuron alone.
        layers: Blocks: all, or numbers and ranges such as 0-3,7.
        factor: Scale factor: 0 ablates, 1 changes nothing.
        replace: Beside the factors, replace what each block, attention, MLP or head adds: by its mean over texts of the task (mean), by its mean at the same position (position), by what it added in another text (resample), or by the constant that hurts least (optimal; fitted, slow).
        draws: How many draws of resample, each another text.
        stop_when: Stop evaluating a layer once it is decided whether its drop exceeds the effect: decided.
        stop_rule: What the level limits once evaluation stops: closed e-BH the false discovery rate, e-Holm the chance of any wrong call.
        effect: Smallest drop in accuracy that counts, where evaluation stops once decided.
        screen: First score gold solutions under every edit (cheap): ranks layers; compares tasks at equal difficulty.
        anyway: Go on where too few answers of the unedited model are right for anything to show.
        screen_top: Screen, then generate only under so many edits of each unit and factor, kind or draw: those that take most log-probability.
        early_answers: Also cut every chain of thought off after so many tokens and ask for its answer: 0,64,128.
        revisions: Training checkpoints to study as well, or all.
        items: Number of items per task, drawn with the seed; or all.
        prompt_style, thinking, system, template_arguments, level, batch_size, device, seed, dtype, engine, temperature, top_p, max_new_tokens, stop, stop_loops, thinking_tokens, out, progress, watcher: as of `lesion.check`.

    Example:
        >>> result = lesion.ablate("bundled:llama-base", tasks=["primer:arithmetic"], items=100)
        >>> result.table[["layer", "accuracy", "critical"]]

    Raises:
        UsageError: a task or layer does not exist, or an argument cannot be what it is to be.
        LesionError: a model cannot be loaded, or the folder belongs to another study.
    """

def isolate(
    model: str | Model | Mapping[str, Any],
    skill: str | Task,
    controls: str | Task | Sequence[str | Task],
    *,
    tasks: str | Task | Mapping[str, Any] | Sequence[str | Task | Mapping[str, Any]] = (),
    weights: str | None = None,
    methods: Literal['mathneuro', 'wanda', 'wanda-rows', 'lape', 'magnitude'] | Sequence[Literal['mathneuro', 'wanda', 'wanda-rows', 'lape', 'magnitude']] = 'mathneuro',
    share: float | Sequence[float] = 0.05,
    samples: int | Sequence[int] = 100,
    repeats: int = 1,
    replacement: bool = False,
    factor: float | Sequence[float] = 0.0,
    exclude_super_weights: int = 0,
    anyway: bool = False,
    validation: float | None = None,
    prompt_style: str | None = None,
    thinking: Literal['on', 'off', 'auto'] | None = 'auto',
    system: str | None = None,
    template_arguments: str | Sequence[str] | None = None,
    level: float = 0.95,
    batch_size: int | Literal['auto'] = 'auto',
    device: str = 'auto',
    items: int | Literal['all'] = 100,
    seed: int = 0,
    dtype: Literal['auto', 'float32', 'bfloat16', 'float16'] = 'auto',
    engine: Literal['transformers', 'vllm'] | EngineChoice | None = 'transformers',
    temperature: float = 0.0,
    top_p: float = 1.0,
    max_new_tokens: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_loops: int | None = None,
    thinking_tokens: int | None = None,
    random_controls: int = 3,
    matched_in: Literal['count', 'magnitude', 'importance'] | Sequence[Literal['count', 'magnitude', 'importance']] = 'count',
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> IsolationResult:
    """Find the weights that a skill needs and its controls do not, with forward passes only; write them as edits.

    Args:
        model: A source for `load`, or a loaded model.
        skill: Task whose weights are sought: gsm8k, primer:arithmetic, FILE.jsonl.
        controls: Task whose weights are excluded.
        tasks: Task on which every edit is evaluated; without one the weights are selected only.
        weights: Full-precision model of a quantised MODEL: weights are selected, cut and evaluated there, by the activations of MODEL.
        methods: Selection method: mathneuro, wanda, wanda-rows, lape, magnitude.
        share: Share of each matrix's weights that is selected for each task, in (0, 1]; not the share that remains.
        samples: Number of calibration texts per task; several numbers show how many are needed.
        repeats: Number of draws of texts; more than one measures how far selections agree.
        replacement: Draw texts with replacement.
        factor: Scale factor of the selected weights, 0 prunes.
        exclude_super_weights: Exclude so many weights with the largest activation spikes from every selection and random control; they are evaluated by themselves.
        anyway: Go on where too few answers of the unedited model are right for anything to show.
        validation: Choose the best edit on this share of the items and report it on the others.
        items: Number of items per task, drawn with the seed; or all.
        random_controls: Number of matched random controls per edit.
        matched_in: What random controls share with the weights of an edit: count (in every matrix), magnitude (and |W|), importance (and |W| times the inputs of the controls' texts).
        prompt_style, thinking, system, template_arguments, level, batch_size, device, seed, dtype, engine, temperature, top_p, max_new_tokens, stop, stop_loops, thinking_tokens, out, progress, watcher: as of `lesion.check`.

    Example:
        >>> result = lesion.isolate("bundled:llama-base", "primer:arithmetic", ["primer:atlas", "primer:reading"])
        >>> edit = lesion.read_edit(result.edits["mathneuro-0.05"])

    Raises:
        UsageError: a task does not exist or has too few items, or a value is wrong.
        LesionError: the model cannot be loaded, or every selection is empty or everything.
    """

def evaluate(
    model: str | Model | Mapping[str, Any],
    edits: str | Path | EditFile | Edit | Sequence[str | Path | EditFile | Edit],
    tasks: str | Task | Mapping[str, Any] | Sequence[str | Task | Mapping[str, Any]],
    *,
    factor: float | Sequence[float] = (),
    anyway: bool = False,
    validation: float | None = None,
    skill: str | Task | None = None,
    force: bool = False,
    prompt_style: str | None = None,
    thinking: Literal['on', 'off', 'auto'] | None = 'auto',
    system: str | None = None,
    template_arguments: str | Sequence[str] | None = None,
    level: float = 0.95,
    batch_size: int | Literal['auto'] = 'auto',
    device: str = 'auto',
    items: int | Literal['all'] = 100,
    seed: int = 0,
    dtype: Literal['auto', 'float32', 'bfloat16', 'float16'] = 'auto',
    engine: Literal['transformers', 'vllm'] | EngineChoice | None = 'transformers',
    temperature: float = 0.0,
    top_p: float = 1.0,
    max_new_tokens: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_loops: int | None = None,
    thinking_tokens: int | None = None,
    random_controls: int = 3,
    matched_in: Literal['count', 'magnitude', 'importance'] | Sequence[Literal['count', 'magnitude', 'importance']] = 'count',
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> EvaluationResult:
    """Evaluate baseline and edits on the same items, each edit with its matched random controls.

    An edit is a value, its text form, or an `.edit` file. Its controls are the same change at other places
    (`lesion.edits.selections.controls`).

    Args:
        model: A source for `load`, or a loaded model.
        edits: An edit: 3x0, 0-3x0, '3.mlp.up top 0.1', …, or an .edit file; without one, the baseline alone.
        tasks: Task: gsm8k, svamp, math500, triviaqa, TASK:PATH, questions.jsonl, primer:arithmetic, …
        factor: Scale factor, 0 prunes; default: each edit's own.
        anyway: Go on where too few answers of the unedited model are right for anything to show.
        validation: Choose the best edit on this share of the items and report it on the others.
        skill: Task whose loss is sought, the others being controls; default: that of an .edit file's calibration.
        force: Accept edits made for another model of the same shapes.
        items: Number of items per task, drawn with the seed; or all.
        random_controls: Number of matched random controls per edit.
        matched_in: What random controls share with the weights of an edit: count (in every matrix), magnitude (and |W|), importance (and |W| times the inputs of the controls' texts).
        prompt_style, thinking, system, template_arguments, level, batch_size, device, seed, dtype, engine, temperature, top_p, max_new_tokens, stop, stop_loops, thinking_tokens, out, progress, watcher: as of `lesion.check`.

    Example:
        >>> result = lesion.evaluate(model, ["3×0", "0-3.mlp×0.5", "cut.edit"], ["primer:arithmetic", "primer:atlas"])
        >>> result.table_full[["edit", "task", "accuracy", "drop_low", "drop_high", "random_lowest", "random_highest"]]

    Raises:
        UsageError: a task does not exist, or a value is wrong.
        LesionError: an edit does not fit the model, or moves too little in its dtype.
    """

def truncate(
    model: str | Model | Mapping[str, Any],
    tasks: str | Task | Mapping[str, Any] | Sequence[str | Task | Mapping[str, Any]],
    *,
    matrices: str | Sequence[str] = 'mlp',
    keep: float | Sequence[float] = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.025, 0.01, 0.005, 0.0025),
    side: Literal['top', 'bottom', 'both'] = 'top',
    objective: Literal['accuracy', 'gold'] = 'accuracy',
    validation: float = 0.2,
    compose: bool = False,
    screen: Literal['auto', 'none'] | int | Mapping[str, Any] = 'auto',
    screen_items: int | Literal['all'] | None = None,
    eliminate: float | None = None,
    revisions: str | Sequence[str] = (),
    prompt_style: str | None = None,
    thinking: Literal['on', 'off', 'auto'] | None = 'auto',
    system: str | None = None,
    template_arguments: str | Sequence[str] | None = None,
    level: float = 0.95,
    batch_size: int | Literal['auto'] = 'auto',
    device: str = 'auto',
    items: int | Literal['all'] = 100,
    seed: int = 0,
    dtype: Literal['auto', 'float32', 'bfloat16', 'float16'] = 'auto',
    engine: Literal['transformers', 'vllm'] | EngineChoice | None = 'transformers',
    temperature: float = 0.0,
    top_p: float = 1.0,
    max_new_tokens: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_loops: int | None = None,
    thinking_tokens: int | None = None,
    layers: str | int | Sequence[int] = 'all',
    anyway: bool = False,
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> TruncationResult:
    """Search for a part of a matrix whose removal improves a model, chosen on some items and tested on the others.

    Args:
        model: A source for `load`, or a loaded model.
        tasks: Task: gsm8k, svamp, math500, triviaqa, TASK:PATH, questions.jsonl, primer:arithmetic, …
        matrices: Matrices to truncate: mlp.up, attention.o, …, a branch (mlp, attention), or all.
        keep: Fraction of a truncated matrix's rank that is kept; the rest of its spectrum is removed.
        side: Side of the spectrum that is kept: top, bottom or both.
        objective: Selection criterion: accuracy, or gold (log-probability of the gold answers).
        validation: Share of items for choosing an edit; the others test it.
        compose: Add further matrices greedily while that helps.
        screen: auto, none, or how many of the best cells are evaluated in full after a look at all by log-probability alone; 8 more are drawn at random to judge the screen.
        screen_items: Number of validation items per task for the screen, or all.
        eliminate: Discard hopeless cells early, with this probability of any error, such as 0.05.
        revisions: Training checkpoints on which the chosen edit is evaluated too.
        items: Number of items per task, drawn with the seed; or all.
        layers: Blocks: all, or numbers and ranges such as 0-3,7.
        anyway: Go on where too few answers of the unedited model are right for anything to show.
        prompt_style, thinking, system, template_arguments, level, batch_size, device, seed, dtype, engine, temperature, top_p, max_new_tokens, stop, stop_loops, thinking_tokens, out, progress, watcher: as of `lesion.check`.

    Example:
        >>> search = lesion.truncate("bundled:llama-base", "primer:atlas?form=contrast", matrices="mlp.up", keep=0.1)
        >>> search.summary.chosen, search.edit

    Raises:
        UsageError: a task, matrix or layer does not exist, or a value is wrong.
        LesionError: the model cannot be loaded or its weights are not finite, or the folder belongs to other questions.
    """

def search(
    model: str | Model | Mapping[str, Any],
    tasks: str | Task | Mapping[str, Any] | Sequence[str | Task | Mapping[str, Any]],
    *,
    items: int | Literal['all'] = 200,
    family: Literal['repeat', 'drop', 'swap', 'scale', 'truncate'] | Sequence[Literal['repeat', 'drop', 'swap', 'scale', 'truncate']] = 'repeat',
    lengths: int | Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8),
    times: int | Sequence[int] = 2,
    damping: float | Sequence[float] = 1.0,
    factor: float | Sequence[float] = (0.9, 1.1),
    unit: Literal['block', 'attention', 'mlp'] | Sequence[Literal['block', 'attention', 'mlp']] = ('attention', 'mlp'),
    matrices: str | Sequence[str] = 'mlp',
    keep: float | Sequence[float] = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.025, 0.01, 0.005, 0.0025),
    side: Literal['top', 'bottom', 'both'] = 'top',
    controls: str | Task | Mapping[str, Any] | Sequence[str | Task | Mapping[str, Any]] = (),
    margin: float = 2.0,
    validation: float = 0.5,
    screen: int | Literal['none'] = 16,
    prompt_style: str | None = None,
    thinking: Literal['on', 'off', 'auto'] | None = 'auto',
    system: str | None = None,
    template_arguments: str | Sequence[str] | None = None,
    level: float = 0.95,
    batch_size: int | Literal['auto'] = 'auto',
    device: str = 'auto',
    seed: int = 0,
    dtype: Literal['auto', 'float32', 'bfloat16', 'float16'] = 'auto',
    engine: Literal['transformers', 'vllm'] | EngineChoice | None = 'transformers',
    temperature: float = 0.0,
    top_p: float = 1.0,
    max_new_tokens: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_loops: int | None = None,
    thinking_tokens: int | None = None,
    layers: str | int | Sequence[int] = 'all',
    anyway: bool = False,
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> SearchResult:
    """Search for blocks to repeat, drop, swap or scale: chosen on some items, tested on the others.

    Args:
        model: A source for `load`, or a loaded model.
        tasks: Task: gsm8k, svamp, math500, triviaqa, TASK:PATH, questions.jsonl, primer:arithmetic, …
        items: Number of items per task, drawn with the seed; or all.
        family: What is tried: repeat, drop, swap, scale or truncate; several by commas.
        lengths: Blocks in a run that is repeated, dropped or swapped with the next run.
        times: How often a repeated run stands in the model.
        damping: Factor of what attention and MLP of the repeated blocks add, behind the first time.
        factor: Factor of a scaled place.
        unit: Places to scale: block, attention or mlp.
        matrices: Matrices to truncate: mlp.up, attention.o, …, a branch (mlp, attention), or all.
        keep: Fraction of a truncated matrix's rank that is kept; the rest of its spectrum is removed.
        side: Side of the spectrum that is kept: top, bottom or both.
        controls: Task that must not get worse; tested, and no part of the choice. Running text: its perplexity.
        margin: A control or a dropped run is no worse where its loss is shown to be smaller, in points; of perplexity in percent.
        validation: Share of items for the choice, half of them for the screen; the others test it.
        screen: Candidates that are left by the screen, which looks at log-probabilities of the gold answers (of running text: of its tokens): the best of those that are to make the model better, and of the drops of each length; none: no screen.
        layers: Blocks: all, or numbers and ranges such as 0-3,7.
        anyway: Go on where too few answers of the unedited model are right for anything to show.
        prompt_style, thinking, system, template_arguments, level, batch_size, device, seed, dtype, engine, temperature, top_p, max_new_tokens, stop, stop_loops, thinking_tokens, out, progress, watcher: as of `lesion.check`.

    Example:
        >>> search = lesion.search("bundled:llama-base", "primer:arithmetic", family="drop", lengths=1, items=40)
        >>> search.summary.choices[0].candidate, search.verdict

    Raises:
        UsageError: a task or layer does not exist, no candidate is left, or a value is wrong.
        LesionError: the model cannot be loaded, or cannot have its blocks in another order; the folder belongs to other
            questions.
    """

def drift(
    model: str | Model | Mapping[str, Any] | Sequence[str | Model | Mapping[str, Any]],
    task: str | Task | Mapping[str, Any],
    *,
    items: int = 20,
    runs: int = 5,
    clusters: int | Sequence[int] | None = None,
    layer_zero: Literal['embedding', 'block'] = 'embedding',
    normalise: Literal['none', 'unit', 'standardise'] = 'none',
    nmi: Literal['arithmetic', 'geometric', 'min', 'max'] = 'arithmetic',
    starts: int = 10,
    part: Literal['prompt', 'solution', 'both'] = 'both',
    solution: Literal['own', 'gold', 'none'] = 'own',
    elbow: Literal['later', 'all'] = 'later',
    between: Sequence[int] | None = None,
    study: str | Path | StudyResult | None = None,
    seed: int = 0,
    dtype: Literal['auto', 'float32', 'bfloat16', 'float16'] = 'auto',
    engine: Literal['transformers', 'vllm'] | EngineChoice | None = 'transformers',
    prompt_style: str | None = None,
    thinking: Literal['on', 'off', 'auto'] | None = 'auto',
    system: str | None = None,
    template_arguments: str | Sequence[str] | None = None,
    level: float = 0.95,
    batch_size: int | Literal['auto'] = 'auto',
    device: str = 'auto',
    max_new_tokens: int | None = None,
    stop_loops: int | None = None,
    thinking_tokens: int | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> DriftResult:
    """Cluster the hidden states of every layer and measure how far tokens leave their first clusters.

    Args:
        model: A source for `load`, or a loaded model; or a list of these.
        task: Task: primer:arithmetic, gsm8k, math500, FILE.jsonl, …
        items: Number of items per run.
        runs: Number of draws of items; curves are means over them.
        clusters: Number of clusters of k-means; of several, 50, or the first, is plotted.
        layer_zero: Reference of the comparison: embedding, or block (the output of block 0).
        normalise: Normalisation of the vectors: none, unit (length 1) or standardise (per dimension).
        nmi: Normalisation of the mutual information by the entropies: arithmetic, geometric, min or max.
        starts: Number of k-means++ initialisations; the lowest inertia is kept.
        part: Tokens that are clustered: prompt, solution or both.
        solution: Solution after the prompt: own (greedy), gold or none.
        elbow: Layers tested for a hinge (elbow) or step: later (all but layer 0), or all.
        between: Two layers between which tokens are followed; default: at the hinge or step.
        study: Output folder of a layer study; its critical blocks are compared with the hinge or step.
        seed: Random seed of the item draws and of k-means.
        dtype, engine, prompt_style, thinking, system, template_arguments, level, batch_size, device, max_new_tokens, stop_loops, thinking_tokens, out, progress, watcher: as of `lesion.check`.

    Example:
        >>> result = lesion.drift("bundled:llama-base", "primer:arithmetic", clusters=[50, 10])
        >>> result.table[["layer", "nmi", "null"]], result.summary.models[0].curve.shape

    Raises:
        UsageError: a task, model or layer does not exist, or a run has fewer tokens than clusters.
        LesionError: a model cannot be loaded or its states are not finite, or the folder belongs to other questions.
    """

def tune(
    model: str | Model | Mapping[str, Any],
    task: str | Task,
    *,
    controls: str | Task | Sequence[str | Task] = (),
    layers: str | int | Sequence[int] | Sequence[str | int | Sequence[int]] = 'critical',
    budget: int | str = '25%',
    study: str | Path | StudyResult | None = None,
    ablation_items: int = 100,
    by: Literal['completions', 'reward'] | None = 'completions',
    adapter: int | None = None,
    steps: int = 40,
    rows: int = 16,
    generations: int | None = None,
    rollout_temperature: float | None = None,
    learning_rate: float | Sequence[float] | None = None,
    seed: int | Sequence[int] = 0,
    items: int = 400,
    control_items: int = 200,
    validation_items: int = 200,
    dtype: str = 'float32',
    prompt_style: str | None = None,
    thinking: Literal['on', 'off', 'auto'] | None = 'auto',
    system: str | None = None,
    template_arguments: str | Sequence[str] | None = None,
    level: float = 0.95,
    batch_size: int | Literal['auto'] = 'auto',
    device: str = 'auto',
    max_new_tokens: int | None = None,
    stop_loops: int | None = None,
    thinking_tokens: int | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> TuningResult:
    """Fine-tune chosen blocks on a task and measure gains there and losses elsewhere.

    Args:
        model: A source for `load`, or a loaded model.
        task: Task with training items: primer:arithmetic, arithmetic:add, copying, gsm8k, triviaqa, …
        controls: Control task, evaluated before and after.
        layers: Which blocks: critical, least, random (of those that are not called critical, where any are known), all, all-adapter, or layers such as 0-3,7; several choices are compared.
        budget: Number of blocks in critical, least and random, or a share such as 25%.
        study: Output folder of a layer study of this model and task; it defines the critical blocks.
        ablation_items: Number of items to find the critical blocks on, where no layer study is given.
        by: Train by completions (supervised, on solved items) or by reward (reinforcement with a verifiable reward, GRPO: answers are drawn, and those that the task's judge finds right are made likelier).
        adapter: Train low-rank adapters of this rank (merged at the end) instead of the blocks.
        steps: Number of training steps.
        rows: Batch size: number of training items in a step (by reward, each with its generations).
        generations: By reward: number of answers drawn to each item of a step.
        rollout_temperature: By reward: sampling temperature of these answers (those that are evaluated are greedy).
        learning_rate: Peak learning rate; of several, the best on held-out training items is kept.
        seed: Random seed of the row order and of random blocks; several seeds give means.
        items: Number of test items of the task.
        control_items: Maximum number of test items per control.
        validation_items: Number of training items held out to choose the learning rate.
        dtype: Data type; only float32, as small steps are lost in others.
        prompt_style, thinking, system, template_arguments, level, batch_size, device, max_new_tokens, stop_loops, thinking_tokens, out, progress, watcher: as of `lesion.check`.

    Example:
        >>> tuned = lesion.tune("bundled:llama-base", "primer:arithmetic", layers="critical", budget=2)
        >>> lesion.load(tuned.model)
        >>> lesion.tune("bundled:llama-base", "primer:arithmetic", layers=["critical", "random"], seed=[0, 1, 2]).table

    Raises:
        UsageError: a task, layer, budget, rank or number of items cannot be, or a model is not in float32.
        LesionError: the model cannot be loaded, TRL is not installed, or the folder belongs to something else.
    """

def effects(
    model: str | Model | Mapping[str, Any] | Sequence[str | Model | Mapping[str, Any]],
    tasks: str | Task | Mapping[str, Any] | Sequence[str | Task | Mapping[str, Any]],
    *,
    unit: Literal['block', 'attention', 'mlp', 'head'] | Sequence[Literal['block', 'attention', 'mlp', 'head']] = ('block', 'attention', 'mlp'),
    items: int | Literal['all'] = 50,
    study: str | Path | StudyResult | None = None,
    seed: int = 0,
    dtype: Literal['auto', 'float32', 'bfloat16', 'float16'] = 'auto',
    prompt_style: str | None = None,
    thinking: Literal['on', 'off', 'auto'] | None = 'auto',
    system: str | None = None,
    template_arguments: str | Sequence[str] | None = None,
    level: float = 0.95,
    batch_size: int | Literal['auto'] = 'auto',
    device: str = 'auto',
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> EffectsResult:
    """Measure what every block writes towards the right answer, and what is lost without it.

    Args:
        model: A source for `load`, or a loaded model; or a list of these.
        tasks: Task with gold answers: primer:arithmetic, ioi, facts, gsm8k, FILE.jsonl, …
        unit: Part of each block to measure: block, attention, mlp, or head (query heads one by one).
        items: Number of items per task, drawn with the seed; or all.
        study: Output folder of a layer study; its drops of accuracy are compared with the effects.
        seed: Random seed of the draw of items and of the intervals.
        dtype, prompt_style, thinking, system, template_arguments, level, batch_size, device, out, progress, watcher: as of `lesion.check`.

    Example:
        >>> result = lesion.effects("bundled:llama-base", "primer:arithmetic", items=20)
        >>> result.verdict, result.table[["unit", "layer", "direct", "total"]]

    Raises:
        UsageError: a task does not exist or has no gold answers, a branch is not known, or the layer study beside it is
            about other models or tasks.
        LesionError: a model cannot be loaded, no block's part in its logits can be read, or the folder belongs to other
            questions.
    """

def interact(
    model: str | Model | Mapping[str, Any],
    tasks: str | Task | Mapping[str, Any] | Sequence[str | Task | Mapping[str, Any]],
    *,
    design: Literal['pairs', 'windows', 'cumulative', 'shapley'] | Sequence[Literal['pairs', 'windows', 'cumulative', 'shapley']] = 'pairs',
    unit: Literal['block', 'attention', 'mlp'] = 'block',
    layers: str | int | Sequence[int] = 'all',
    places: str | Sequence[str] = (),
    factor: float = 0.0,
    anyway: bool = False,
    measure: Literal['accuracy', 'gold'] = 'accuracy',
    window: int = 2,
    order: str | Sequence[int | str] = 'least',
    random_orders: int = 5,
    permutations: int = 20,
    prompt_style: str | None = None,
    thinking: Literal['on', 'off', 'auto'] | None = 'auto',
    system: str | None = None,
    template_arguments: str | Sequence[str] | None = None,
    level: float = 0.95,
    batch_size: int | Literal['auto'] = 'auto',
    device: str = 'auto',
    items: int | Literal['all'] = 100,
    seed: int = 0,
    dtype: Literal['auto', 'float32', 'bfloat16', 'float16'] = 'auto',
    engine: Literal['transformers', 'vllm'] | EngineChoice | None = 'transformers',
    temperature: float = 0.0,
    top_p: float = 1.0,
    max_new_tokens: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_loops: int | None = None,
    thinking_tokens: int | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> InteractionResult:
    """Remove several blocks together: pairs, windows, one after another, Shapley values.

    Args:
        model: A source for `load`, or a loaded model.
        tasks: Task: gsm8k, svamp, math500, triviaqa, TASK:PATH, questions.jsonl, primer:arithmetic, …
        design: What is removed together: pairs, windows, cumulative or shapley.
        unit: Part of each block to scale: block, attention or mlp.
        layers: Blocks: all, or numbers and ranges such as 0-3,7.
        places: Places of any unit in the stead of layers and unit, such as 23.attention.head.4,22.mlp,13.
        factor: Scale factor: 0 ablates, 1 changes nothing.
        anyway: Go on where too few answers of the unedited model are right for anything to show.
        measure: What is lost: accuracy, or gold (log-probability of the gold answers, which can fall further).
        window: With windows: how many consecutive blocks are removed together.
        order: With cumulative: least (important first), most, or every block once, as 13,10,14.
        random_orders: With cumulative: number of random orders that the order is compared with.
        permutations: With shapley: number of orders that are drawn.
        items: Number of items per task, drawn with the seed; or all.
        prompt_style, thinking, system, template_arguments, level, batch_size, device, seed, dtype, engine, temperature, top_p, max_new_tokens, stop, stop_loops, thinking_tokens, out, progress, watcher: as of `lesion.check`.

    Example:
        >>> pairs = lesion.interact("bundled:llama-base", "primer:arithmetic", layers=[1, 3, 4], items=50)
        >>> pairs.table[["places", "sum", "together", "beyond", "verdict"]]

    Raises:
        UsageError: a task or a block does not exist, there is one place only, or an argument cannot be what it is.
        LesionError: the model cannot be loaded or its weights are not finite, or the folder belongs to other questions.
    """

def patch(
    model: str | Model | Mapping[str, Any] | Sequence[str | Model | Mapping[str, Any]],
    tasks: str | Task | Mapping[str, Any] | Sequence[str | Task | Mapping[str, Any]],
    *,
    items: int | Literal['all'] = 50,
    unit: Literal['block', 'attention', 'mlp', 'head'] | Sequence[Literal['block', 'attention', 'mlp', 'head']] = ('block', 'attention', 'mlp'),
    layers: str | int | Sequence[int] = 'all',
    position: Literal['earlier different', 'last different', 'next', 'between', 'last', 'all'] | Sequence[Literal['earlier different', 'last different', 'next', 'between', 'last', 'all']] = ('earlier different', 'last different', 'next', 'between', 'last', 'all'),
    seed: int = 0,
    dtype: Literal['auto', 'float32', 'bfloat16', 'float16'] = 'auto',
    engine: Literal['transformers', 'vllm'] | EngineChoice | None = 'transformers',
    prompt_style: str | None = None,
    thinking: Literal['on', 'off', 'auto'] | None = 'auto',
    system: str | None = None,
    template_arguments: str | Sequence[str] | None = None,
    level: float = 0.95,
    batch_size: int | Literal['auto'] = 'auto',
    device: str = 'auto',
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> PatchingResult:
    """Put activations of one prompt into the run on another, and find where the answer is carried.

    Args:
        model: A source for `load`, or a loaded model; or a list of these.
        tasks: Task whose items have a right and a tempting token: ioi, ioi:PATH, facts, induction, agreement, or a file of items with 'tempting'.
        items: Number of items per task, drawn with the seed; or all.
        unit: Places to patch: block (residual stream), attention, mlp, or head (query heads one by one).
        layers: Blocks: all, or numbers and ranges such as 0-3,7.
        position: Tokens to patch: earlier different, last different, next, between, last or all; by default each of these.
        seed: Random seed of the draw of items.
        dtype, engine, prompt_style, thinking, system, template_arguments, level, batch_size, device, out, progress, watcher: as of `lesion.check`.

    Example:
        >>> result = lesion.patch("bundled:llama-base", "ioi", items=4)
        >>> result.table[["direction", "place", "layer", "position", "effect"]]

    Raises:
        UsageError: a task, model or layer does not exist, or no item of a task has a corrupted prompt of its length.
        LesionError: a model cannot be loaded, or the folder cannot be written.
    """

def overlay(
    *folders: str | Path | StudyResult,
    pairs: str | Sequence[str] = (),
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> OverlayResult:
    """Compare the block profiles of several studies, with rank correlations.

    Args:
        folders: Output folders of finished studies: ablate, drift, isolate, truncate.
        pairs: Pair of profiles that is tested, fixed beforehand, as parts of their labels: 'drop · gsm8k ~ density · mathneuro'. The correction is over these alone; default: all pairs of different studies.
        seed: Random seed of the permutation test (models of more than 8 blocks).
        out, progress, watcher: as of `lesion.check`.

    Example:
        >>> compared = lesion.overlay("layers", "drift", "isolation")
        >>> compared.tables["correlations"]

    Raises:
        UsageError: a folder has no numbers per block or is named twice, two call different weights by one name, no
            model has two profiles, or a pair does not name two of them.
        LesionError: a file is damaged.
    """

def compare(
    *folders: str | Path | StudyResult,
    labels: str | Sequence[str] = (),
    tasks: str | Sequence[str] = (),
    level: float = 0.95,
    out: str | Path | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> ComparisonResult:
    """Compare studies or logs item by item: what changed, and which items both got wrong.

    Args:
        folders: Output folders of studies with answers (ablate, evaluate, isolate, truncate, tune), and logs: of inspect_ai (.eval, .json), lm-evaluation-harness and lmms-eval (samples_*.jsonl or their folder), Every Eval Ever, and JSON Lines or CSV with an item and a verdict or score a row. Each is compared with the first.
        labels: Name of a folder in tables and charts, one for each folder in their order; default: the folder's own.
        tasks: Task to compare; default: every task in common.
        level, out, progress, watcher: as of `lesion.check`.

    Example:
        >>> compared = lesion.compare("base", "tuned")
        >>> compared.table
        >>> compared.items.query("change == 'lost'")

    Raises:
        UsageError: a folder or log has no answers or is named twice, two have no item in common, or answers were decoded
            or prompted differently; what differs is said.
        LesionError: a store or log is damaged.
    """
