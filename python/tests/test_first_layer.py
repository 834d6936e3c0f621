"""The program of docs/guide/first-layer.md: a layer over two ranks has the sums of plain torch."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from support import MISSING

try:
    import torch
except ImportError:
    torch = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/guide/first-layer.md"
PROGRAM = r"```python\n(.*?)```"


@unittest.skipIf(torch is None, "torch is not installed")
@unittest.skipIf(MISSING, MISSING)
@unittest.skipUnless(PAGE.exists(), "documents are not here")
class FirstLayerTest(unittest.TestCase):
    def test_every_rank_has_the_sums_of_plain_torch(self):
        (program,) = re.findall(PROGRAM, PAGE.read_text(encoding="utf-8"), re.DOTALL)
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        variables = dict(os.environ, OMP_NUM_THREADS="1")
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), *filter(None, [variables.get("PYTHONPATH")])])
        for name in ("RANK", "WORLD_SIZE"):
            variables.pop(name, None)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "first_layer.py"
            path.write_text(program, encoding="utf-8")
            done = subprocess.run(
                [sys.executable, *launcher, str(path)], capture_output=True, text=True, timeout=240, env=variables
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(re.findall(r"rank (\d): \d+ rows for 4 experts", done.stdout)), ["0", "1"])


if __name__ == "__main__":
    unittest.main()
