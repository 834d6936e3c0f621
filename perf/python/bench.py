#!/usr/bin/env python3
"""What a step costs through each of the ways from Python: host time, wall time, time in a CUDA graph, and the calls.

    perf/python/bench.py --ranks 4 --tokens 1 128        on GPUs if torch has some, else on CPUs
    perf/python/bench.py --device cpu --ranks 1 --hidden 512 --experts 8 --topk 2

Ranks are processes of this host. All times are in us for one step. `host` is what the call keeps the host busy for: on
GPUs nothing is waited for, on CPUs it is the step itself. `wall` is a step with the device's work, and `graph` one of a
CUDA graph of --chain steps; both are those of the slowest rank. The line `add_` is an in-place addition of one element
by torch: the machine's price of a call, and the unit of the column `a`. Each number is the median of --rounds rounds of
--steps steps, the columns of one path in one round after another path's, so that all see the same machine.
`--runtime` adds the kernels, copies, allocations and calls of the CUDA runtime of one step. `--json FILE` keeps all.
"""
import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

import paths

TIMEOUT_MS = 60000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 128])
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--topk", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--chain", type=int, default=20)
    parser.add_argument("--only", default="", help="paths whose name contains this")
    parser.add_argument("--runtime", action="store_true")
    parser.add_argument("--json")
    return parser.parse_args()


class Rank:
    """The paths of one rank."""

    def __init__(self, options, rank, identity):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.options, self.rank = torch, dist, options, rank
        self.device = torch.device("cuda", rank % torch.cuda.device_count()) if options.device == "cuda" else "cpu"
        self.identity = identity

    def paths(self, tokens):
        torch, options = self.torch, self.options
        import moecomm.deep_ep as deep_ep

        shape = paths.Shape(tokens, options.hidden, options.experts, options.topk)
        random = torch.Generator().manual_seed(self.rank)
        ids = torch.rand(tokens, shape.experts, generator=random).topk(shape.topk)[1].to(self.device)
        rows = torch.randn(tokens, shape.hidden, generator=random).to(self.device, torch.bfloat16)
        weights = torch.rand(tokens, shape.topk, generator=random).to(self.device)
        place = dict(backend="cuda", device=self.device.index) if options.device == "cuda" else dict(backend="host")
        identity = self.identity[tokens]
        self.comm = paths.communicator(options.ranks, self.rank, identity, shape, timeout_ms=TIMEOUT_MS, **place)
        deep_ep.configure(device=options.device, timeout_ms=TIMEOUT_MS, tokens_max=max(tokens, 8))
        self.buffer = deep_ep.Buffer(self.dist.group.WORLD, explicitly_destroy=True)
        one = torch.zeros(1, device=self.device)
        found = [paths.Path("add_", lambda: lambda: one.add_(1))]
        self.queue = paths.Queue()
        found += paths.binding_paths(self.comm, shape, rows.new_empty, ids.to(torch.int32), rows, self.queue)
        found += paths.deep_ep_paths(self.buffer, shape, ids, rows, weights)
        found += paths.dispatcher_paths(self.comm, shape, ids, rows, weights)
        return [path for path in found if options.only in path.name or path.name == "add_"]

    def synchronize(self):
        if self.options.device == "cuda":
            self.torch.cuda.synchronize()

    def slowest(self, value):
        everyone = [None] * self.options.ranks
        self.dist.all_gather_object(everyone, value)
        return max(everyone)

    def eager(self, path):
        """Host and wall time of a step."""
        steps = self.options.steps
        self.synchronize()
        self.dist.barrier()
        begin = time.perf_counter()
        for _ in range(steps):
            path.step()
        issued = time.perf_counter()
        self.synchronize()
        return (issued - begin) / steps * 1e6, (time.perf_counter() - begin) / steps * 1e6

    def capture(self, path):
        torch = self.torch
        stream = torch.cuda.Stream()
        self.queue.stream = stream.cuda_stream
        with torch.cuda.stream(stream):
            path.step()
            path.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(self.options.chain):
                path.step()
        self.queue.stream = None
        return graph

    def replay(self, graph):
        torch = self.torch
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        self.dist.barrier()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / self.options.chain * 1e3

    def measure(self, tokens):
        """{path: {column: value}}."""
        options, found = self.options, {}
        for path in self.paths(tokens):
            found[path.name] = {"path": path, "calls": paths.count_calls(path.step), "host": [], "wall": [], "graph": []}
            self.dist.barrier()
            if options.runtime and options.device == "cuda":
                found[path.name]["runtime"] = paths.count_runtime(path.step)
        for _ in range(options.rounds):
            for one in found.values():
                host, wall = self.eager(one["path"])
                one["host"].append(self.slowest(host))
                one["wall"].append(self.slowest(wall))
        if options.device == "cuda":
            for one in found.values():
                if one["path"].captures:
                    graph = self.capture(one["path"])
                    one["graph"] = [self.slowest(self.replay(graph)) for _ in range(3 * options.rounds)][options.rounds :]
                    del graph
        self.synchronize()
        for one in found.values():
            del one["path"]
            one.update({name: statistics.median(one[name]) if one[name] else None for name in ("host", "wall", "graph")})
        self.buffer.destroy()
        self.comm.destroy()
        return found


def serve(options, rank, meeting, identity, pipe):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if options.device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
        torch.cuda.set_stream(torch.cuda.Stream())
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=options.ranks)
    found = {tokens: Rank(options, rank, identity).measure(tokens) for tokens in options.tokens}
    if rank == 0:
        pipe.send(found)
    dist.destroy_process_group()


def print_table(tokens, found, options):
    unit = found["add_"]["host"]
    print(f"\n{tokens} tokens of {options.hidden} elements, top-{options.topk} of {options.experts}, "
          f"{options.ranks} ranks, {options.device}: us for a step")
    print(f"{'':46}{'host':>8}{'a':>7}{'wall':>9}{'graph':>8}{'calls':>7}")
    for name, one in found.items():
        graph = f"{one['graph']:8.1f}" if one["graph"] else f"{'-':>8}"
        print(f"{name:46}{one['host']:8.1f}{one['host'] / unit:7.1f}{one['wall']:9.1f}{graph}{one['calls']:7}")
        for what, count in one.get("runtime", {}).items():
            print(f"{'':8}{count:4} {what}")


def main():
    options = arguments()
    import torch

    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    identity = {tokens: paths.moecomm.unique_id() for tokens in options.tokens}
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        here, there = spawn.Pipe(duplex=False)
        meeting = os.path.join(folder, "meeting")
        ranks = [
            spawn.Process(target=serve, args=(options, rank, meeting, identity, there)) for rank in range(options.ranks)
        ]
        for rank in ranks:
            rank.start()
        there.close()
        try:
            found = here.recv()
        except EOFError:
            found = {}
        for rank in ranks:
            rank.join()
    for tokens, table in found.items():
        print_table(tokens, table, options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "found": found}, file, indent=1)
    return 0 if found and all(rank.exitcode == 0 for rank in ranks) else 1


if __name__ == "__main__":
    sys.exit(main())
