"""By the `kind` of a typed summary, what gives the form in which its numbers were recorded."""

from __future__ import annotations

import forms_isolation
import forms_memory
import forms_recall
import forms_tuning

FORMS = {**forms_isolation.FORMS, **forms_memory.FORMS, **forms_recall.FORMS, **forms_tuning.FORMS}
