"""Runs DeepEP's own tests on moecomm.deep_ep. docs/guide/deepep.md says which files to fetch, and what passes.

    python3 python/tests/deep_ep_upstream.py [--cpu] [--nodes N] FOLDER TEST [options of the test]

The test is imported as it is. Its surroundings differ: `import deep_ep` finds moecomm.deep_ep; with --cpu its tensors
are on the CPU (cuda_on_cpu.py); and times that it takes by names of DeepEP's kernels are those of whole calls. If there
are not 8 processes per node, the assertions about this number are left out, and the first line of output says so. Nodes
on GPUs may be joined by TCP, so their processes follow the advice of docs/reference/tuning.md for it."""

import argparse
import ast
import importlib.util
import os
import pathlib
import runpy
import sys
import time
from typing import Any, List, NamedTuple, Tuple

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import cuda_on_cpu  # noqa: E402

TESTS = ("test_intranode", "test_low_latency", "test_internode")


class Run(NamedTuple):
    """The settings of every process."""

    folder: str
    test: str
    cpu: bool
    nodes: int
    local_ranks: int = 0  # of a node


# ---- What stands around a test -----------------------------------------------------------------------------------


def time_of(function, calls, cpu):
    """Seconds of one call, after one that is not timed."""
    function()
    if cpu:
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - begin) / calls
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / calls


def replace_timing(utils: Any, cpu: bool) -> None:
    """utils.bench_kineto looks for kernels by DeepEP's names: here each name gets the time of the whole call. On CPUs
    utils.bench makes two calls in place of a hundred."""

    def bench_kineto(fn, kernel_names, *_, num_kernels_per_period=1, **__):
        seconds = time_of(fn, 1 if cpu else 5, cpu)
        one = seconds if num_kernels_per_period == 1 else [seconds] * num_kernels_per_period
        return one if isinstance(kernel_names, str) else [one for _ in kernel_names]

    utils.bench_kineto = bench_kineto
    if cpu:
        utils.bench = lambda fn, *_, **__: (time_of(fn, 1, cpu),) * 3


def without_node_size(source: str, path: str) -> Tuple[Any, List[str]]:
    """The code of a test without its assertions that a node has 8 ranks, and these."""
    tree, removed = ast.parse(source, path), []

    class Remove(ast.NodeTransformer):
        def visit_Assert(self, node):
            if "num_local_ranks == 8" not in ast.unparse(node.test):
                return node
            removed.append(ast.unparse(node))
            return ast.copy_location(ast.Pass(), node)

    tree = ast.fix_missing_locations(Remove().visit(tree))
    return compile(tree, path, "exec"), removed


def load(run: Run) -> Tuple[Any, List[str]]:
    """The module of the test, and the assertions that were left out."""
    path = pathlib.Path(run.folder, f"{run.test}.py")
    source, removed = path.read_text(), []
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(run.test, path))
    sys.modules[run.test] = module
    if run.local_ranks in (0, 8):
        code = compile(source, str(path), "exec")
    else:
        code, removed = without_node_size(source, str(path))
    exec(code, module.__dict__)
    return module, removed


def prepare(run: Run) -> None:
    """Makes this process one in which the test can be imported."""
    sys.path.insert(0, run.folder)
    if run.cpu:
        cuda_on_cpu.install()
    import moecomm.deep_ep
    import utils

    moecomm.deep_ep.install()
    moecomm.deep_ep.configure(device="cpu" if run.cpu else "cuda")
    replace_timing(utils, run.cpu)


def serve(place: int, run: Run, arguments: Any) -> None:
    """One rank."""
    node, local_rank = divmod(place, run.local_ranks)
    os.environ.update(WORLD_SIZE=str(run.nodes), RANK=str(node))  # DeepEP's tests mean nodes
    if run.cpu:
        torch.set_num_threads(1)
    elif run.nodes > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(run.nodes * run.local_ranks)))
        gpus = visible.split(",")[node * run.local_ranks : (node + 1) * run.local_ranks]
        os.environ.update(CUDA_VISIBLE_DEVICES=",".join(gpus), CUDA_MODULE_LOADING="EAGER")
    prepare(run)
    module, removed = load(run)
    if removed and place == 0:
        print("left out:", "; ".join(removed), flush=True)
    if run.nodes > 1 and not run.cpu:
        torch.cuda.set_device(local_rank)
        torch.cuda.set_stream(torch.cuda.Stream())
    module.test_loop(local_rank, *arguments)


# ---- The program -------------------------------------------------------------------------------------------------


class _Spawned(Exception):
    """Ends the test's main program, once it has said what it wants to start."""


def arguments_of(run: Run, options: List[str]) -> Tuple[Any, int]:
    """The arguments that the test's own main program, with these options, passes to its processes, and their number."""

    def capture(function, args=(), nprocs=1, **_):
        raise _Spawned(args, nprocs)

    sys.argv = [f"{run.test}.py", *options]
    os.environ.update(WORLD_SIZE=str(run.nodes), RANK="0")
    spawn, torch.multiprocessing.spawn = torch.multiprocessing.spawn, capture
    try:
        runpy.run_path(str(pathlib.Path(run.folder, f"{run.test}.py")), run_name="__main__")
    except _Spawned as spawned:
        return spawned.args
    finally:
        torch.multiprocessing.spawn = spawn
    raise RuntimeError(f"{run.test}.py started no processes")


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs one of DeepEP's own tests on moecomm.deep_ep.")
    parser.add_argument("--cpu", action="store_true", help="tensors on the CPU, moecomm's host backend")
    parser.add_argument("--nodes", type=int, default=1, help="nodes that the processes of this host stand for, which "
                        "become domains of moecomm. Each has the processes of --num-processes")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which the processes are ended")
    parser.add_argument("folder", help="with the test and its utils.py")
    parser.add_argument("test", choices=TESTS)
    known, options = parser.parse_known_args()
    run = Run(str(pathlib.Path(known.folder).resolve()), known.test, known.cpu, known.nodes)
    prepare(run)
    arguments, local_ranks = arguments_of(run, options)
    run = run._replace(local_ranks=local_ranks)
    if run.nodes > 1:
        os.environ["MOECOMM_DOMAIN_SIZE"] = str(local_ranks)
    started = torch.multiprocessing.spawn(serve, (run, arguments), run.nodes * local_ranks, join=False)
    deadline = time.monotonic() + known.limit
    while not started.join(timeout=1):
        if time.monotonic() > deadline:
            for process in started.processes:
                process.kill()
            print(f"{run.test}: not done after {known.limit:g} s", file=sys.stderr)
            return 1
    print(f"{run.test}: passed on {run.nodes * local_ranks} ranks", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
