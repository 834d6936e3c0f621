"""The runner of DeepEP's own tests, with a test of ours in their form. Needs torch."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support_ranks import SKIP

RUNNER = str(pathlib.Path(__file__).resolve().parent / "deep_ep_upstream.py")
UTILS = """
import inspect, os
import torch, torch.distributed as dist

def init_dist(local_rank, num_local_ranks):
    nodes, node = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    assert "device_id" in inspect.signature(dist.init_process_group).parameters
    dist.init_process_group("nccl", init_method="file://" + os.environ["MEETING"], world_size=nodes * num_local_ranks,
                            rank=node * num_local_ranks + local_rank, device_id=torch.device("cuda:0"))
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("cuda")
    torch.cuda.set_device(local_rank)
    return dist.get_rank(), dist.get_world_size(), dist.new_group()

def bench(fn):
    raise RuntimeError("bench measures GPUs")

def bench_kineto(fn, kernel_names, num_kernels_per_period=1):
    raise RuntimeError("bench_kineto looks for kernels")
"""
TEST = """
import argparse, os
import torch, torch.distributed as dist
import deep_ep
from utils import bench, bench_kineto, init_dist

def test_loop(local_rank, num_local_ranks, args):
    rank, ranks, group = init_dist(local_rank, num_local_ranks)
    assert num_local_ranks == 8 and ranks > 8
    buffer = deep_ep.Buffer(group, explicitly_destroy=True)
    x = torch.full((3, 128), rank + 1, dtype=torch.bfloat16, device="cuda").cuda().to(torch.device("cuda"))
    assert torch.randn((8192, 8192)).numel() < 8192
    ids = torch.tensor([[0, 1], [1, 2], [3, -1]])
    per_rank, per_domain, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, 4)
    assert per_domain.tolist() == [2, 2]
    calls = []
    assert bench(lambda: calls.append(1))[0] < 1 and len(calls) == 2
    assert len(bench_kineto(lambda: 0, ("a", "b"), num_kernels_per_period=2)[1]) == 2
    recv_x, _, _, _, handle, _ = buffer.dispatch(x, topk_idx=ids, num_tokens_per_expert=per_expert)
    sums, _, _ = buffer.combine(recv_x, handle)
    assert torch.equal(sums, args.factor * x * in_rank.sum(dim=1, keepdim=True)), "wrong sums"
    everyone = torch.empty(ranks, 3, 2, dtype=ids.dtype, device="cuda")
    dist.all_gather_into_tensor(everyone, ids, group=group)
    assert torch.equal(everyone[-1], ids)
    buffer.destroy()
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-processes", type=int, default=8)
    parser.add_argument("--factor", type=int, default=1)
    args = parser.parse_args()
    assert os.environ["WORLD_SIZE"] == "2"
    torch.multiprocessing.spawn(test_loop, args=(args.num_processes, args), nprocs=args.num_processes)
"""


@unittest.skipIf(SKIP, SKIP)
class UpstreamTest(unittest.TestCase):
    def run_test(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "utils.py").write_text(UTILS)
            pathlib.Path(folder, "test_internode.py").write_text(TEST)
            command = [sys.executable, RUNNER, "--cpu", "--nodes", "2", "--limit", "200", folder, "test_internode"]
            environment = {**os.environ, "MEETING": os.path.join(folder, "meeting")}
            return subprocess.run(
                [*command, "--num-processes", "1", *options], capture_output=True, text=True, timeout=240, env=environment
            )

    def test_a_test_in_deepeps_form_runs_on_cpus(self):
        found = self.run_test()
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn("left out: assert num_local_ranks == 8 and ranks > 8", found.stdout)
        self.assertIn("test_internode: passed on 2 ranks", found.stdout)

    def test_a_failed_assertion_fails_the_run(self):
        found = self.run_test("--factor", "2")
        self.assertNotEqual(found.returncode, 0)
        self.assertIn("wrong sums", found.stderr)


if __name__ == "__main__":
    unittest.main()
