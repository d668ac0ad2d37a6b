"""By the `kind` of a typed summary, what gives the form in which its numbers were recorded."""

from __future__ import annotations

import forms_ablation
import forms_drift
import forms_isolation
import forms_memory
import forms_recall
import forms_truncation
import forms_tuning

ROOMS = (forms_ablation, forms_drift, forms_isolation, forms_memory, forms_recall, forms_truncation, forms_tuning)
FORMS = {kind: form for room in ROOMS for kind, form in room.FORMS.items()}
