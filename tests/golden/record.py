"""Write the record of the golden studies anew: `python tests/golden/record.py [NAME …]`."""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import golden

if __name__ == "__main__":
    for name in sys.argv[1:] or golden.CHAINS:
        with tempfile.TemporaryDirectory() as out:
            record = golden.run_chain(name, Path(out))
        file = golden.record_file(name)
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(record, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
        print(f"{file}: {file.stat().st_size:,} bytes")
