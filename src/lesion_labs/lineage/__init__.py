"""The bundled lineage: a small decoder trained on the primer tasks."""
