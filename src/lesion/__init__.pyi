# ruff: noqa
# fmt: off
"""The public names, each with its home: what `lesion` imports when a name is first used, and what editors read."""

from lesion.activations.calibration import calibration as calibration
from lesion.activations.contributions import reference as reference
from lesion.activations.observation import observe as observe
from lesion.activations.optimal import optimal_reference as optimal_reference
from lesion.api import result as result
from lesion.api import study as study
from lesion.edits.apply import applied as applied
from lesion.edits.edit import BASELINE as BASELINE
from lesion.edits.edit import Compose as Compose
from lesion.edits.edit import ScaleAttention as ScaleAttention
from lesion.edits.edit import ScaleBlock as ScaleBlock
from lesion.edits.edit import ScaleMlp as ScaleMlp
from lesion.edits.edit import ScaleParameters as ScaleParameters
from lesion.edits.edit import Truncate as Truncate
from lesion.edits.files.artefact import read_edit as read_edit
from lesion.edits.files.artefact import save_edit as save_edit
from lesion.edits.files.checkpoint import apply as apply
from lesion.edits.files.perturbed import distance as distance
from lesion.edits.files.perturbed import perturb as perturb
from lesion.edits.files.reordering import save_reordered as save_reordered
from lesion.edits.gates import gated as gated
from lesion.edits.reference import read_reference as read_reference
from lesion.edits.replace import Replace as Replace
from lesion.edits.selections.listed import Listed as Listed
from lesion.edits.selections.neurons import LAPE as LAPE
from lesion.edits.selections.controls import Random as Random
from lesion.edits.selections.topk import Magnitude as Magnitude
from lesion.edits.selections.topk import MathNeuro as MathNeuro
from lesion.edits.selections.topk import Wanda as Wanda
from lesion.edits.text import parse as parse
from lesion.edits.units import ScaleExpert as ScaleExpert
from lesion.edits.units import ScaleGroup as ScaleGroup
from lesion.edits.units import ScaleHead as ScaleHead
from lesion.edits.units import ScaleMatrix as ScaleMatrix
from lesion.edits.units import ScaleNeuron as ScaleNeuron
from lesion.engines.config import EngineChoice as EngineChoice
from lesion.errors import LesionError as LesionError
from lesion.errors import UsageError as UsageError
from lesion.functions import ablate as ablate
from lesion.functions import check as check
from lesion.functions import compare as compare
from lesion.functions import drift as drift
from lesion.functions import effects as effects
from lesion.functions import evaluate as evaluate
from lesion.functions import interact as interact
from lesion.functions import isolate as isolate
from lesion.functions import overlay as overlay
from lesion.functions import patch as patch
from lesion.functions import search as search
from lesion.functions import truncate as truncate
from lesion.functions import tune as tune
from lesion.models.load import Model as Model
from lesion.models.load import load as load
from lesion.models.reordered import reordered as reordered
from lesion.progress import Watcher as Watcher
from lesion.studies.ablation.report import AblationResult as AblationResult
from lesion.studies.check.report import CheckResult as CheckResult
from lesion.studies.comparison.report import ComparisonResult as ComparisonResult
from lesion.studies.drift.report import DriftResult as DriftResult
from lesion.studies.effects.report import EffectsResult as EffectsResult
from lesion.studies.interaction.report import InteractionResult as InteractionResult
from lesion.studies.isolation.report import IsolationResult as IsolationResult
from lesion.studies.overlay.report import OverlayResult as OverlayResult
from lesion.studies.patching.report import PatchingResult as PatchingResult
from lesion.studies.search.report import SearchResult as SearchResult
from lesion.studies.truncation.report import TruncationResult as TruncationResult
from lesion.studies.tuning.report import TuningResult as TuningResult
from lesion.tasks.counterparts import aligned as aligned
from lesion.tasks.given import task as task
from lesion.verification.verify import verify as verify
from lesion.tasks.catalogue import find

find_task = find
