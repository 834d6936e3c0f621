"""moecomm.vllm on vLLM's CPU platform, on 4 and on 2 ranks, against plain torch in one process, with a stand-in for
vLLM. Needs torch. Always on CPUs."""

import os
import sys
import types
import unittest
from unittest import mock

import stand_in
from support_ranks import RANKS, SKIP, TIMEOUT_MS, RanksTest, refuses, torch

if torch is not None:
    import moecomm
    import moecomm.deep_ep as deep_ep
    import moecomm.vllm
    import stand_in_vllm as vllm

HIDDEN, EXPERTS, TOPK = 256, 8, 3
HT, LL = "deepep_high_throughput", "deepep_low_latency"


def set_up():
    """The stand-in of vLLM on CPUs and the plugin. Returns the configuration, and the communicator of a group."""
    config = vllm.install_cpu()
    config.parallel_config.all2all_backend = HT
    moecomm.vllm.build.cache_clear()
    moecomm.vllm.build_cpu.cache_clear()
    with mock.patch.dict(os.environ, VLLM_PLUGINS="moecomm"):
        moecomm.vllm.plugin()
    deep_ep.settings._settings.clear()
    deep_ep.configure(timeout_ms=TIMEOUT_MS)

    def communicator(name="ep:0", use_all2all=True):
        world = torch.distributed.group.WORLD
        made = sys.modules[f"{vllm.COMMUNICATORS}.cpu_communicator"].CpuCommunicator
        return made(cpu_group=world, device=None, device_group=world, unique_name=name, use_all2all=use_all2all)

    return config, communicator


def make(communicator):
    """The manager of the communicator, and one layer's prepare and finalize, as vLLM makes them."""
    manager, utils = communicator().all2all_manager, sys.modules[f"{vllm.FUSED_MOE}.all2all_utils"]
    moe = types.SimpleNamespace(num_local_experts=EXPERTS // manager.world_size)
    return manager, utils.maybe_make_prepare_finalize(utils, HT, manager, moe)


def inputs(rank, dtype, topk=TOPK, tokens=None):
    """Rows and weights whose sums are exact in bfloat16; ids with some -1. A rank has no tokens."""
    random = torch.Generator().manual_seed(31 + rank)
    tokens = (0 if rank == 1 else 6 + rank % 2) if tokens is None else tokens
    x = torch.randint(-2, 3, (tokens, HIDDEN), generator=random).to(dtype)
    ids = torch.rand(tokens, EXPERTS, generator=random).topk(topk)[1]
    ids[torch.rand(tokens, topk, generator=random) < 0.2] = -1
    return x, torch.randint(1, 3, (tokens, topk), generator=random).float(), ids


def reference(x, weights, ids):
    """A reference without ranks: each token's weighted sum over its experts. Expert e multiplies by e + 1."""
    return x.float() * torch.where(ids >= 0, weights * (ids + 1), 0.0).sum(dim=1, keepdim=True)


def layer(kernel, x, weights, ids, on_input=False):
    """One layer as vLLM's modular kernel runs it. If the experts' rows have the output's shape, they are in it."""
    local = EXPERTS // kernel.num_dispatchers()
    receive = kernel.prepare_async(x, weights, ids, EXPERTS, None, on_input, vllm.quant_config(), True)
    rows, scales, meta, their_ids, their_weights = receive()
    assert scales is None and rows.dtype == x.dtype and their_ids.shape == (rows.shape[0], 1)
    counts = torch.bincount(their_ids.flatten(), minlength=local)
    assert counts.tolist() == meta.expert_num_tokens.tolist(), "experts get what is theirs, and nothing else"
    made = vllm.cpu_experts(rows, their_ids, their_weights, kernel.rank_expert_offset, local, on_input)
    output = torch.full_like(x, 99)
    if output.shape == made.shape:
        made = output.copy_(made)
    reduce = vllm.TopKWeightAndReduceNoOP()
    kernel.finalize_async(output, made, their_weights, their_ids, on_input, reduce)()
    return output


def layers(rank):
    _, communicator = set_up()
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        manager, kernel = make(communicator)
        assert type(kernel).__name__ == "MoecommCpuPrepareAndFinalize" and kernel.topk_indices_dtype() == torch.int32
        x, weights, ids = inputs(rank, dtype)
        experts = types.SimpleNamespace(apply=dict)
        kernel.post_init_setup(experts)
        assert experts.apply(topk_ids=ids, expert_map=ids) == dict(topk_ids=ids, expert_map=None)
        assert kernel.output_is_reduced() and kernel.activation_format.name == "Standard"
        for given in (ids, ids.int()):
            sums = layer(kernel, x, weights, given)
            assert sums.dtype == dtype and torch.equal(sums.float(), reference(x, weights, ids)), (sums, x)
        manager.destroy()


def rows_of_all_kinds(rank):
    """No tokens anywhere; ids of -1 alone; all rows at one rank; as many rows as the rank has tokens; top-1."""
    _, communicator = set_up()
    manager, kernel = make(communicator)
    for tokens in (0, 4):
        x, weights, ids = inputs(rank, torch.bfloat16, tokens=tokens)
        for given in (torch.full_like(ids, -1), torch.full_like(ids, 5)):
            given[:, 1:] = -1
            assert torch.equal(layer(kernel, x, weights, given).float(), reference(x, weights, given))
    x, weights, ids = inputs(rank, torch.bfloat16, tokens=4)
    ids[:] = -1
    ids[:, 0] = rank * (EXPERTS // kernel.num_dispatchers())
    assert torch.equal(layer(kernel, x, weights, ids).float(), reference(x, weights, ids))
    x, weights, ids = inputs(rank, torch.bfloat16, topk=1)
    assert torch.equal(layer(kernel, x, weights, ids, on_input=True).float(), reference(x, weights, ids))
    manager.destroy()


def communicators(rank):
    """Only the communicator of the experts has our manager, and only if it is asked for one and the backend is ours."""
    config, communicator = set_up()
    made = communicator()
    assert type(made.all2all_manager).__name__ == "MoecommHTAll2AllManager" and made.use_all2all
    assert deep_ep.settings.current_settings()["device"] == "cpu"
    for name, use_all2all in (("tp:0", True), ("ep:0", False)):
        other = communicator(name, use_all2all)
        assert other.all2all_manager is None and not other.use_all2all
    config.parallel_config.all2all_backend = "allgather_reducescatter"
    assert communicator().all2all_manager == "AgRsAll2AllManager"
    config.parallel_config.all2all_backend = LL
    refuses(NotImplementedError, "vLLM has no experts of the batched format for CPUs: use deepep_high", communicator)
    config.parallel_config.all2all_backend = HT
    config.compilation_config.mode = 2
    refuses(NotImplementedError, "add --enforce-eager", communicator)


def refusals(rank):
    _, communicator = set_up()
    manager, kernel = make(communicator)
    x, weights, ids = inputs(rank, torch.bfloat16)
    arguments = (x, weights, ids, EXPERTS, None, False, vllm.quant_config(torch.float8_e4m3fn))
    refuses(NotImplementedError, "quant_dtype is torch.float8_e4m3fn and defer_input_quant False", kernel.prepare,
            *arguments)  # fmt: skip
    x, weights, ids = inputs(rank, torch.bfloat16, tokens=2)
    ids[:] = torch.arange(EXPERTS)[: ids.shape[1]]
    rows, _, _, their_ids, their_weights = kernel.prepare(x, weights, ids, EXPERTS, None, False, vllm.quant_config())
    finalize = (torch.empty_like(x), rows, their_weights, their_ids, False)
    if len(rows):
        refuses(TypeError, "weight_and_reduce_impl is a TopKWeightAndReduceDelegate", kernel.finalize, *finalize,
                vllm.TopKWeightAndReduceDelegate())  # fmt: skip
    assert kernel.finalize(*finalize, vllm.TopKWeightAndReduceNoOP()) is None  # the ranks are still in step
    manager.destroy()


class VllmOnCpusTest(RanksTest):
    def test_layers_of_three_types(self):
        self.run_ranks(layers)

    def test_rows_of_all_kinds(self):
        self.run_ranks(rows_of_all_kinds)

    def test_whose_manager_a_communicator_has(self):
        self.run_ranks(communicators)

    def test_refusals_name_argument_and_value(self):
        self.run_ranks(refusals)


class VllmOnTwoCpusTest(VllmOnCpusTest):
    ranks = RANKS // 2


@unittest.skipIf(SKIP, SKIP)
class InstallCpuTest(unittest.TestCase):
    def setUp(self):
        vllm.install_cpu()
        moecomm.vllm.build.cache_clear()
        moecomm.vllm.build_cpu.cache_clear()
        self.communicators = sys.modules[f"{vllm.COMMUNICATORS}.cpu_communicator"]
        self.utils = sys.modules[f"{vllm.FUSED_MOE}.all2all_utils"]
        vars(self.utils).pop("DeepEPHTPrepareAndFinalize", None)

    def tearDown(self):
        stand_in.remove("vllm")

    def test_what_was_found_is_put_back(self):
        undo = moecomm.vllm.install_cpu()
        moecomm.vllm.install_cpu()
        made = moecomm.vllm.build_cpu()
        self.assertIs(self.communicators.CpuCommunicator, made.Communicator)
        self.assertIs(self.utils.DeepEPHTPrepareAndFinalize, made.Standard)
        self.assertTrue(issubclass(made.Communicator, vllm.CpuCommunicator))
        undo()
        self.assertIs(self.communicators.CpuCommunicator, vllm.CpuCommunicator)
        self.assertFalse(hasattr(self.utils, "DeepEPHTPrepareAndFinalize"))
        self.utils.DeepEPHTPrepareAndFinalize = "theirs"
        moecomm.vllm.install_cpu()()
        self.assertEqual(self.utils.DeepEPHTPrepareAndFinalize, "theirs")

    def test_the_plugin_asks_for_the_platform(self):
        platform = sys.modules["vllm.platforms"].current_platform
        for on_cpus in (False, True):
            platform.is_cpu = lambda on_cpus=on_cpus: on_cpus
            self.communicators.CpuCommunicator = vllm.CpuCommunicator
            with mock.patch.dict(os.environ, VLLM_PLUGINS="moecomm"):
                moecomm.vllm.plugin()
            found = self.communicators.CpuCommunicator
            self.assertEqual(found is moecomm.vllm.build_cpu().Communicator, on_cpus)
            made = moecomm.vllm.build_cpu() if on_cpus else moecomm.vllm.build()
            self.assertIs(self.utils.DeepEPHTPrepareAndFinalize, made.Standard)

    def test_an_absent_communicator_is_named(self):
        del self.communicators.CpuCommunicator
        with self.assertRaisesRegex(moecomm.vllm.MissingInterface, "CpuCommunicator in vllm.distributed.*vLLM 0.33"):
            moecomm.vllm.install_cpu()
        self.assertFalse(hasattr(self.utils, "DeepEPHTPrepareAndFinalize"))


if __name__ == "__main__":
    unittest.main()
