"""examples/torch_train.py: a model whose experts live on four ranks has the losses of one process."""

import os
import pathlib
import subprocess
import sys
import unittest

from support import DEVICE, MISSING

try:
    import torch
except ImportError:
    torch = None

EXAMPLE = str(pathlib.Path(__file__).resolve().parents[2] / "examples/torch_train.py")


@unittest.skipIf(torch is None, "torch is not installed")
@unittest.skipIf(MISSING, MISSING)
@unittest.skipUnless(os.path.exists(EXAMPLE), "examples are not here")
class TorchTrainTest(unittest.TestCase):
    def losses(self, *launcher):
        variables = dict(os.environ, OMP_NUM_THREADS="1", NVIDIA_TF32_OVERRIDE="0")
        for name in ("RANK", "WORLD_SIZE"):
            variables.pop(name, None)
        done = subprocess.run(
            [sys.executable, *launcher, EXAMPLE], capture_output=True, text=True, timeout=240, env=variables
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return [float(line) for line in done.stdout.split()]

    def test_four_ranks_have_the_losses_of_one_process(self):
        ranks = 4 if DEVICE == "cpu" else torch.cuda.device_count()
        alone = self.losses()
        together = self.losses("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
        self.assertEqual(len(together), 12)
        self.assertLess(together[-1], 0.75 * together[0])
        for one, other in zip(alone, together):
            self.assertAlmostEqual(one, other, delta=1e-5 if DEVICE == "cpu" else 1e-3)


if __name__ == "__main__":
    unittest.main()
