"""moecomm.vllm in the classes that vLLM's newest wheel has for CPUs, on 4 and on 2 ranks: vLLM's choices, the fit of
our classes, and the output of a layer, against plain torch in one process. `scripts/engines.sh vllm` fetches the
wheel."""

import unittest

from engine_wheels import missing
from support_ranks import RANKS, RanksTest, refuses, torch

if torch is not None:
    import engine_vllm_cpu
    import moecomm.vllm
    import test_engines
    from test_engines import EXPERTS, HIDDEN, INTERMEDIATE, MAX, TOPK


def set_up(install=True):
    vllm = engine_vllm_cpu.install()
    test_engines.settle()
    undo = moecomm.vllm.install_cpu() if install else None
    return vllm, undo


def mine(rank, size):
    local = EXPERTS // size
    return slice(rank * local, (rank + 1) * local)


def forward(vllm, rank, kernel, layer, x, scores, ids, on_input=False):
    size = torch.distributed.get_world_size()
    mapped = torch.full((EXPERTS,), -1)
    mapped[mine(rank, size)] = torch.arange(EXPERTS // size)
    silu = vllm.activation.MoEActivation.SILU
    return kernel.apply(x, layer.w13_weight, layer.w2_weight, scores, ids, silu, EXPERTS, mapped, on_input)


def fits(rank):
    vllm, _ = set_up()
    assert engine_vllm_cpu.report(vllm) == [], engine_vllm_cpu.report(vllm)


def choices(rank):
    """vLLM's communicator for CPUs has no manager of this backend, and its substitute makes no handles."""
    vllm, undo = set_up()
    undo()
    theirs = engine_vllm_cpu.communicate(vllm)
    assert type(theirs.all2all_manager).__name__ == "AgRsAll2AllManager"
    refuses(NotImplementedError, "", theirs.all2all_manager.get_handle, {})
    moecomm.vllm.install_cpu()
    ours = engine_vllm_cpu.communicate(vllm)
    assert isinstance(ours, type(theirs)) and type(ours.all2all_manager).__name__ == "MoecommHTAll2AllManager"
    assert engine_vllm_cpu.communicate(vllm, "tp:0").all2all_manager is None
    vllm.settings.parallel_config.all2all_backend = "deepep_low_latency"
    refuses(NotImplementedError, "no experts of the batched format", engine_vllm_cpu.communicate, vllm)
    vllm.settings.parallel_config.all2all_backend = "allgather_reducescatter"
    assert type(engine_vllm_cpu.communicate(vllm).all2all_manager).__name__ == "AgRsAll2AllManager"


def layers(rank):
    """Several batches and both types, with ids as vLLM's router for CPUs makes them. vLLM's own weights are bfloat16."""
    vllm, _ = set_up()
    size = torch.distributed.get_world_size()
    for dtype, tolerance in ((torch.bfloat16, 0.05), (torch.float32, 1e-4)):
        manager = engine_vllm_cpu.communicate(vllm).all2all_manager
        weights = [one[mine(rank, size)] for one in test_engines.weights()]
        shape = (EXPERTS, TOPK, HIDDEN, INTERMEDIATE)
        kernel, layer = engine_vllm_cpu.make_kernel(vllm, shape, MAX, dtype, weights)
        assert type(kernel.prepare_finalize).__name__ == "MoecommCpuPrepareAndFinalize"
        for batch in range(3):
            x, scores, ids = test_engines.inputs(rank, batch)
            x, due = x.to(dtype), test_engines.reference(x, scores, ids)
            ids = ids.to(kernel.prepare_finalize.topk_indices_dtype())
            found = forward(vllm, rank, kernel, layer, x, scores, ids)
            assert found.dtype == dtype
            test_engines.close(found, due, tolerance)
        manager.destroy()


def as_many_rows_as_tokens(rank):
    """Each rank's tokens go to the next one, so vLLM's experts write to the layer's output. Also: weights on the input."""
    vllm, _ = set_up()
    size = torch.distributed.get_world_size()
    manager = engine_vllm_cpu.communicate(vllm).all2all_manager
    weights = [one[mine(rank, size)] for one in test_engines.weights()]
    shape = (EXPERTS, 1, HIDDEN, INTERMEDIATE)
    kernel, layer = engine_vllm_cpu.make_kernel(vllm, shape, MAX, torch.bfloat16, weights)
    random = torch.Generator().manual_seed(rank)
    x = torch.randn(MAX, HIDDEN, generator=random).bfloat16()
    scores, ids = torch.full((MAX, 1), 0.5), torch.full((MAX, 1), (rank + 1) % size * (EXPERTS // size))
    found = forward(vllm, rank, kernel, layer, x, scores, ids.int())
    test_engines.close(found, test_engines.reference(x, scores, ids))
    found = forward(vllm, rank, kernel, layer, x, scores, ids.int(), on_input=True)
    test_engines.close(found, test_engines.reference((x * scores).bfloat16(), torch.ones_like(scores), ids))
    manager.destroy()


@unittest.skipIf(missing("vllm"), missing("vllm"))
class VllmOnCpusTest(RanksTest):
    def test_the_classes_and_the_stand_in_fit(self):
        self.run_ranks(fits)

    def test_what_vllm_chooses(self):
        self.run_ranks(choices)

    def test_layers(self):
        self.run_ranks(layers)

    def test_as_many_rows_as_tokens(self):
        self.run_ranks(as_many_rows_as_tokens)


class VllmOnTwoCpusTest(VllmOnCpusTest):
    ranks = RANKS // 2


if __name__ == "__main__":
    unittest.main()
