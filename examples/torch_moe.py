"""One MoE layer on GPUs with torch: route, dispatch, experts, combine; checked against plain torch. Needs torch and GPUs.

    moerun -n 4 python3 examples/torch_moe.py                           one GPU per rank, or shared
    torchrun --nproc-per-node 4 examples/torch_moe.py
"""

import os
import pathlib
import sys

try:
    import torch
except ImportError:
    print("this example needs torch")
    sys.exit(77)  # "skipped" to the test scripts

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import moecomm  # noqa: E402

TOKENS, HIDDEN, EXPERTS, TOPK = 64, 1024, 32, 4


def moe_layer(handle, rows, topk_idx, weights):
    stream = torch.cuda.current_stream()
    handle.route(topk_idx, weights, stream=stream)
    counts = handle.counts()  # waits for the route; a layer in a CUDA graph allocates for the most rows instead
    arrived = rows.new_empty(counts.layout_rows, rows.shape[1])
    handle.dispatch(rows, arrived, stream=stream)
    for local, group in enumerate(arrived.split(counts.rows_per_expert)):
        group *= counts.first_expert + local + 1  # what the expert does
    sums = torch.empty_like(rows)
    handle.combine(arrived, sums, weights="apply", stream=stream)
    return sums


def main():
    if not torch.cuda.is_available():
        print("this example needs GPUs")
        return 77
    ordinal = int(os.environ.get("MOECOMM_LOCAL_RANK", os.environ.get("LOCAL_RANK", "0"))) % torch.cuda.device_count()
    torch.cuda.set_device(ordinal)
    with moecomm.Communicator.from_env(backend="cuda", device=ordinal) as comm:
        torch.manual_seed(comm.rank)
        rows = torch.randn(TOKENS, HIDDEN, device="cuda", dtype=torch.bfloat16)
        weights, topk_idx = torch.randn(TOKENS, EXPERTS, device="cuda").softmax(dim=1).topk(TOPK)
        with comm.handle(EXPERTS, TOPK, layout="expert-major", tokens_max=TOKENS, index_type="int64") as handle:
            sums = moe_layer(handle, rows, topk_idx, weights)
            expected = rows.float() * (weights * (topk_idx + 1)).sum(dim=1, keepdim=True)
            error = ((sums.float() - expected).abs() / expected.abs().clamp_min(1e-3)).max().item()
        print(f"rank {comm.rank} of {comm.nranks}: {TOKENS} tokens, largest relative error {error:.1e}")
    return 0 if error < 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
