"""moecomm.torch.window_pool on GPUs: torch's own allocations take the rows of dispatches that only window memory can
take. Run it with MOECOMM_TEST_DEVICE=cuda. test_window_pool.py has what needs no GPU."""

import unittest

from support_ranks import DEVICE, RANKS, RanksTest, refuses, torch

if torch is not None:
    import moecomm
    import moecomm.torch
    from test_torch import EXPERTS, TOKENS, TOPK, expected_rows, inputs, join

NO_POOLS = None if DEVICE != "cpu" else "torch has memory pools on GPUs only: set MOECOMM_TEST_DEVICE=cuda"
NO_GRAPHS = NO_POOLS or (None if hasattr(torch.cuda.CUDAGraph, "_retain_pool") else "needs a newer torch")
ONLY_WINDOWS = dict(heap_bytes=64 << 20, staging_rows=-1, modes="ht")  # without a staging area nothing else will do


def pooled(rank):
    """All rows of these steps must be window memory, since there is no staging area."""
    with join(**ONLY_WINDOWS) as comm:
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, mode="ht")
        rows, ids, weights = inputs(rank, dtype=torch.bfloat16)
        with moecomm.torch.window_pool(comm):
            got = moe.dispatch(rows, ids, weights)
            back = got.rows.clone()
        due_rows, due_weights = expected_rows(rank, "flat", lambda _: TOKENS)
        assert torch.equal(got.rows, due_rows.to(torch.bfloat16)) and torch.equal(got.topk_weights, due_weights)
        sums = moe.combine(back, got)
        experts = torch.arange(EXPERTS, device=rows.device).view(1, 1, EXPERTS)
        named = (ids.unsqueeze(2) == experts).any(dim=1)
        ranks = named.view(TOKENS, RANKS, EXPERTS // RANKS).any(dim=2).sum(dim=1)
        assert torch.allclose(sums.float(), rows.float() * ranks.unsqueeze(1), rtol=0.02)
        handle, stream = moe.handle_of(got), moe.stream()
        plain = torch.empty_like(got.rows)
        if plain.numel() > 0:  # the last use of this handle, since all ranks take part in what one refuses
            refuses(moecomm.InvalidArgument, "staging area", handle.dispatch, rows, plain, stream=stream)
        try:
            with moecomm.torch.window_pool(comm):
                torch.empty(1 << 30, dtype=torch.uint8, device=rows.device)
            raise AssertionError("the heap has 64 MiB")
        except torch.cuda.OutOfMemoryError as error:
            assert "\nmoeMemPoolAlloc: bytes is 1073741824, but the largest free block" in str(error), error
        torch.empty(1 << 26, dtype=torch.uint8, device=rows.device)  # torch's own memory
        del got, back
        moecomm.torch.release_window_pool(comm)
        moecomm.torch.window_tensor(comm, (64 << 20,), torch.uint8).free()  # all of the heap has come back
        side = torch.cuda.Stream()
        with torch.cuda.stream(side), moecomm.torch.window_pool(comm):
            late = torch.full((1 << 22,), 7, dtype=torch.int32, device=rows.device)
        side.synchronize()
    assert (late == 7).all()  # the communicator is gone
    del late
    torch.cuda.empty_cache()


def captured(rank):
    with join(**ONLY_WINDOWS) as comm:
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, mode="ht", out_rows_max="worst")
        rows, ids, weights = inputs(rank, dtype=torch.bfloat16)
        with moecomm.torch.window_pool(comm):
            first = moe.dispatch(rows, ids, weights)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), moecomm.torch.window_pool(comm):
            got = moe.dispatch(rows, ids, weights)  # without a staging area only window memory will do
        for _ in range(3):
            got.rows.zero_()
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(got.rows, first.rows)
        del graph, got, first


class TorchPoolsTest(RanksTest):
    @unittest.skipIf(NO_POOLS, NO_POOLS)
    def test_dispatches_deliver_into_what_torch_allocates(self):
        self.run_ranks(pooled)

    @unittest.skipIf(NO_GRAPHS, NO_GRAPHS)
    def test_captured_steps_have_window_memory_too(self):
        self.run_ranks(captured)


if __name__ == "__main__":
    unittest.main()
