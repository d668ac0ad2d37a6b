"""What is refused before a large library is loaded."""

import json
import subprocess
import sys

from lesion.core.preflight import blocks_of
from lesion.models.load import peek
from lesion.models.source import bundled

ABLATE = ("ablate", "bundled:llama-base", "--task", "primer:atlas")
EVALUATE = ("evaluate", "bundled:llama-base", "--task", "primer:atlas", "--out", "new")
EFFECTS = ("effects", *EVALUATE[1:])
REFUSED = {
    ("ablat",): "No such command 'ablat'",
    (*ABLATE, "--items", "many"): "items must be a whole number",
    ("ablate", "bundled:llama-base", "--task", "primer:atlass"): "nearest: primer:atlas",
    ("ablate", "bundled:llama-base", "--task", "nowhere.jsonl"): "There is no file nowhere.jsonl",
    ("ablate", "bundled:lama", "--task", "primer:atlas"): "There is no bundled model 'lama'",
    ("ablate", "./nowhere", "--task", "primer:atlas"): "There is no folder ./nowhere",
    (*ABLATE, "--layers", "12"): "there is no block 12: bundled:llama-base has blocks 0 to 7",
    (*ABLATE, "--device", "gpu"): "There is no device 'gpu'",
    (*ABLATE, "--out", "drift"): "drift belongs to `lesion drift`",
    (*EVALUATE, "--edit", "banana"): "'banana' is not an edit",
    (*EVALUATE, "--edit", "nowhere.edit"): "There is no file nowhere.edit",
    (*EVALUATE, "--edit", "0x0+12.mlp.up top 0.1"): "there is no block 12",
    ("truncate", "bundled:llama-base", "--task", "primer:atlas", "--layers", "9", "--out", "new"): "no block 9",
    ("tune", "bundled:llama-base", "--task", "primer:atlas", "--layers", "9", "--out", "new"): "no block 9",
    ("drift", "bundled:llama-base", "--task", "primer:atlass", "--out", "new"): "nearest: primer:atlas",
    ("apply", "bundled:llama-base", "--edit", "nowhere.edit", "--out", "new"): "There is no file nowhere.edit",
    ("apply", "bundled:llama-base", "--edit", "9x0", "--out", "new"): "there is no block 9",
    ("apply", "bundled:llama-base", "--edit", "3x0", "--factor", "0,2", "--out", "new"): "takes one number here",
    ("apply", "bundled:llama-base", "--order", "0-9", "--out", "new"): "there is no block 9: bundled:llama-base",
    ("apply", "bundled:llama-base", "--out", "new"): "Nothing to write is given",
    ("apply", "bundled:llama-base", "--order", "0,1", "--force", "--out", "new"): "--force belongs to --edit",
    (*ABLATE, "--top-p", "0.5"): "temperature 0 is greedy",
    (*EFFECTS, "--study", "nowhere"): "nowhere is no folder",
    ("overlay", "nowhere", "--out", "new"): "nowhere is no folder",
    ("show", "bundled:lama"): "There is no bundled model 'lama'",
    ("show", "bundled:llama-base", "--dtype", "float8"): "There is no dtype 'float8'",
    ("edit", "show", "nowhere.edit"): "There is no file nowhere.edit",
    ("report", "nowhere"): "There is no study in nowhere",
    ("run", "demoo"): "There is no study 'demoo'",
    ("lab", "lineage", "--stage", "bas"): "The lineage has no stage 'bas' (nearest: base)",
}
PROCESS = """
import json, sys
from lesion.cli.main import code
print(json.dumps([[code(arguments), "torch" in sys.modules] for arguments in json.load(sys.stdin)]))
"""


def test_wrong_use_is_refused_before_torch_is_loaded(tmp_path):
    (tmp_path / "drift").mkdir()
    (tmp_path / "drift" / "lesion.json").write_text('{"kind": "drift"}', encoding="utf-8")
    (tmp_path / "drift" / "summary.json").write_text("{}", encoding="utf-8")
    asked = json.dumps([list(arguments) for arguments in REFUSED])
    done = subprocess.run(
        [sys.executable, "-c", PROCESS],
        input=asked,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=True,
    )
    assert json.loads(done.stdout) == [[1 if arguments[0] == "report" else 2, False] for arguments in REFUSED]
    said = done.stderr.splitlines()
    assert [words for words, line in zip(REFUSED.values(), said, strict=True) if words not in line] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drift"]


def test_the_number_of_blocks_is_read_from_the_configuration_as_transformers_reads_it():
    assert {name: blocks_of(f"bundled:{name}") for name in bundled()} == {
        name: peek(f"bundled:{name}") for name in bundled()
    }
    assert blocks_of("somebody/model") is None
