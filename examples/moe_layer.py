"""One MoE layer over several ranks: route, dispatch, experts and combine, checked against a plain reference.

    moerun -n 4 python3 examples/moe_layer.py                   numpy, host memory
    moerun -n 4 python3 examples/moe_layer.py --device cuda     torch, one GPU per rank (or shared)
"""

import argparse
import os
import pathlib
import sys

try:
    import numpy
except ImportError:
    print("this example needs numpy")
    sys.exit(77)  # "skipped" to the test scripts

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import moecomm  # noqa: E402

HIDDEN, EXPERTS, TOPK, TOKENS_MAX = 256, 16, 4, 64


def expert_matrices():
    """[experts, hidden, hidden], the same on every rank. A real program has only its local experts."""
    return numpy.random.default_rng(1).standard_normal((EXPERTS, HIDDEN, HIDDEN), numpy.float32) / HIDDEN**0.5


def my_tokens(rank):
    """This rank's rows [tokens, hidden], experts [tokens, topk] and weights [tokens, topk]. Ranks have different
    numbers of tokens."""
    random = numpy.random.default_rng(100 + rank)
    tokens = TOKENS_MAX - 7 * rank % TOKENS_MAX
    rows = random.standard_normal((tokens, HIDDEN), numpy.float32)
    topk_idx = numpy.argsort(random.random((tokens, EXPERTS)), axis=1)[:, :TOPK].astype(numpy.int32)
    weights = random.random((tokens, TOPK), numpy.float32)
    return rows, topk_idx, weights / weights.sum(axis=1, keepdims=True)


def reference(rows, topk_idx, weights, matrices):
    """The layer's result, computed without communication."""
    result = numpy.zeros_like(rows)
    for token, row in enumerate(rows):
        for expert, weight in zip(topk_idx[token], weights[token]):
            result[token] += weight * numpy.maximum(row @ matrices[expert], 0)
    return result


class NumpyArrays:
    """Arrays in host memory."""

    stream = None

    def __init__(self, _):
        pass

    def put(self, array):
        return numpy.ascontiguousarray(array)

    def empty(self, shape):
        return numpy.empty(shape, numpy.float32)

    def run_expert(self, rows, matrix):
        return numpy.maximum(rows @ matrix, 0)

    def get(self, array):
        return array


class TorchArrays:
    """Arrays on a GPU, with work on torch's current stream."""

    def __init__(self, device):
        import torch

        self._torch = torch
        torch.cuda.set_device(device)
        self.stream = torch.cuda.current_stream()

    def put(self, array):
        return self._torch.from_numpy(array).cuda()

    def empty(self, shape):
        return self._torch.empty(shape, device="cuda")

    def run_expert(self, rows, matrix):
        return self._torch.relu(rows @ matrix)

    def get(self, array):
        return array.cpu().numpy()


def run_layer(handle, arrays, rows, topk_idx, weights, matrices):
    """[tokens, hidden] -> [tokens, hidden]"""
    handle.route(topk_idx, weights, stream=arrays.stream)
    counts = handle.counts()
    arrived = arrays.empty((counts.layout_rows, HIDDEN))
    handle.dispatch(rows, arrived, row_type="float32", stream=arrays.stream)
    outputs = arrays.empty((counts.layout_rows, HIDDEN))
    begin = 0
    for local, count in enumerate(counts.rows_per_expert):  # EXPERT_MAJOR: one group of rows per expert
        matrix = matrices[counts.first_expert + local]
        outputs[begin : begin + count] = arrays.run_expert(arrived[begin : begin + count], matrix)
        begin += count
    result = arrays.empty((rows.shape[0], HIDDEN))
    handle.combine(outputs, result, weights="apply", stream=arrays.stream)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("host", "cuda"), default="host")
    device = parser.parse_args().device
    ordinal = int(os.environ.get("MOECOMM_LOCAL_RANK", os.environ.get("LOCAL_RANK", "0")))
    if device == "cuda":
        import torch

        ordinal %= torch.cuda.device_count()
    arrays = TorchArrays(ordinal) if device == "cuda" else NumpyArrays(ordinal)
    settings = dict(backend=device, device=ordinal, modes="ht", tokens_max=TOKENS_MAX, row_bytes_max=HIDDEN * 4)
    with moecomm.Communicator.from_env(**settings) as comm:
        rows, topk_idx, weights = my_tokens(comm.rank)
        matrices = expert_matrices()
        with comm.handle(EXPERTS, TOPK, layout="expert-major") as handle:
            result = run_layer(
                handle,
                arrays,
                arrays.put(rows),
                arrays.put(topk_idx),
                arrays.put(weights),
                [arrays.put(matrix) for matrix in matrices],
            )
        error = numpy.abs(arrays.get(result) - reference(rows, topk_idx, weights, matrices)).max()
        print(f"rank {comm.rank} of {comm.nranks}: {rows.shape[0]} tokens, largest error {error:.2e}")
        return 0 if error < (1e-2 if device == "cuda" else 1e-4) else 1


if __name__ == "__main__":
    sys.exit(main())
