"""moecomm.vllm on 4 ranks, against plain torch in one process, with a stand-in for vLLM. Needs torch."""

import os
import pathlib
import subprocess
import sys
import types
import unittest
from unittest import mock

from support import MISSING
from support_lost import die_within, until_failure
from support_ranks import DEVICE, RANKS, TIMEOUT_MS, RanksTest, device, refuses, torch

if torch is not None:
    import moecomm
    import moecomm.deep_ep as deep_ep
    import moecomm.vllm
    import stand_in_vllm as vllm

TESTS = str(pathlib.Path(__file__).resolve().parent)
TOKENS, MAX, HIDDEN, EXPERTS, TOPK = 6, 8, 256, 8, 3
LOCAL = EXPERTS // RANKS
MOE = types.SimpleNamespace(num_experts=EXPERTS, num_local_experts=LOCAL, hidden_dim=HIDDEN, max_num_tokens=MAX)
HT, LL = "deepep_high_throughput", "deepep_low_latency"


def tokens_of(rank):
    """Different numbers, and none on one rank."""
    return 0 if rank == 2 else TOKENS + rank % 2


def inputs(rank, topk=TOPK, tokens=None):
    """Rows and weights whose sums are exact in bfloat16; ids with some -1."""
    random = torch.Generator().manual_seed(31 + rank)
    tokens = tokens_of(rank) if tokens is None else tokens
    x = torch.randint(-2, 3, (tokens, HIDDEN), generator=random).to(torch.bfloat16)
    ids = torch.rand(tokens, EXPERTS, generator=random).topk(topk)[1]
    ids[torch.rand(tokens, topk, generator=random) < 0.2] = -1
    weights = torch.randint(1, 3, (tokens, topk), generator=random).float()
    return x.to(device()), weights.to(device()), ids.to(device())


def reference(x, weights, ids, placed=None):
    """A reference without ranks: each token's weighted sum over its experts. Expert e multiplies by e + 1."""
    served = ids if placed is None else torch.where(ids < 0, ids, placed[ids.clamp(min=0)])
    factors = torch.where(ids >= 0, weights * (served + 1), 0.0).sum(dim=1, keepdim=True)
    return x.float() * factors


def set_up():
    """The stand-in, the plugin, and settings for tests. Returns the log of vLLM's micro-batch functions."""
    log = vllm.install()
    moecomm.vllm.build.cache_clear()
    with mock.patch.dict(os.environ, VLLM_PLUGINS="other, moecomm"):
        moecomm.vllm.plugin()
    deep_ep.settings._settings.clear()
    deep_ep.configure(device=torch.device(DEVICE).type, timeout_ms=TIMEOUT_MS)
    return log


def make(backend, **options):
    """The objects that vLLM makes for a backend: the manager and one layer's prepare and finalize."""
    all2all = sys.modules[f"{vllm.COMMUNICATORS}.all2all"]
    manager = all2all.DeepEPHTAll2AllManager if backend == HT else all2all.DeepEPLLAll2AllManager
    manager = manager(torch.distributed.group.WORLD)
    utils = sys.modules[f"{vllm.FUSED_MOE}.all2all_utils"]
    return manager, utils.maybe_make_prepare_finalize(utils, backend, manager, MOE, **options)


def expert_map(rank):
    mapped = torch.full((EXPERTS,), -1, device=device())
    mapped[rank * LOCAL : (rank + 1) * LOCAL] = torch.arange(LOCAL, device=device())
    return mapped


def experts(rank, kernel, prepared, expected_dtype=None, dtype=None):
    dtype = dtype or torch.bfloat16
    rows, scales, meta, ids, weights = prepared
    assert expected_dtype is None or rows.dtype == expected_dtype, rows.dtype
    if kernel.activation_format.name == "Standard":
        return vllm.standard_experts(rows, scales, meta, ids, weights, expert_map(rank), dtype), weights, ids
    assert ids is None and weights is None and rows.shape[:2] == (LOCAL, RANKS * MAX)
    return vllm.batched_experts(rows, scales, meta, rank * LOCAL, dtype), None, None


def layer(rank, kernel, x, weights, ids, config, in_halves, on_input=False, defer=False, dtype=None):
    """One layer as vLLM's modular kernel runs it, in one piece or in halves."""
    arguments = (x, weights, ids, EXPERTS, expert_map(rank), on_input, config, defer)
    if in_halves:
        found = kernel.prepare_async(*arguments)
        hook, receive = found if isinstance(found, tuple) else (lambda: None, found)
        hook()
        prepared = receive()
    else:
        prepared = kernel.prepare(*arguments)
    rows, their_weights, their_ids = experts(rank, kernel, prepared, dtype)
    if their_ids is None:
        their_weights, their_ids = weights, ids
    output = torch.full_like(x, 99)
    arguments = (output, rows, their_weights, their_ids, on_input, vllm.TopKWeightAndReduceDelegate())
    if in_halves:
        found = kernel.finalize_async(*arguments)
        hook, receive = found if isinstance(found, tuple) else (lambda: None, found)
        hook()
        receive()
    else:
        assert kernel.finalize(*arguments) is None
    return output


def both_formats(rank):
    set_up()
    x, weights, ids = inputs(rank)
    due = reference(x, weights, ids)
    for backend in (HT, LL):
        manager, kernel = make(backend)
        assert kernel.num_dispatchers() == RANKS and kernel.output_is_reduced() and kernel.supports_async()
        assert kernel.topk_indices_dtype() == torch.int64
        assert kernel.max_num_tokens_per_rank() == (None if backend == HT else MAX)
        assert manager.max_sms_used() == (None if backend == HT else 0)
        for in_halves in (False, True):
            for given in (ids, ids.int()):
                sums = layer(rank, kernel, x, weights, given, vllm.quant_config(), in_halves)
                assert torch.equal(sums.float(), due), (backend, in_halves, sums, due)
        manager.destroy()
        manager.destroy()


def quantised(rank):
    """Quantisation to fp8: by block and by token before HT rows travel, otherwise afterwards; by block inside LL."""
    set_up()
    fp8 = torch.float8_e4m3fn
    x, weights, ids = inputs(rank)
    due = reference(x, weights, ids)
    block = vllm.quant_config(fp8, [128, 128])
    token = vllm.quant_config(fp8, per_act_token_quant=True)
    tensor = vllm.quant_config(fp8, a1_scale=torch.tensor(0.5, device=x.device))
    manager, kernel = make(HT)
    for config in (block, token, tensor):
        for in_halves in (False, True):
            # Without rows, vLLM's experts get what came: nothing was quantised behind the dispatch.
            got = layer(rank, kernel, x, weights, ids, config, in_halves)
            assert torch.allclose(got.float(), due, rtol=0.07, atol=0.5), (got.float() - due).abs().max()
    # MXFP8 is quantised behind the dispatch, in the order of scales that the experts want.
    got = layer(rank, kernel, x, weights, ids, vllm.quant_config("mxfp8"), True)
    assert torch.allclose(got.float(), due, rtol=0.07, atol=0.5)
    with mock.patch.object(kernel, "_quantize", side_effect=AssertionError("quantised")):
        kept = layer(rank, kernel, x, weights, ids, block, False, defer=True, dtype=torch.bfloat16)
    assert torch.equal(kept.float(), due)
    manager.destroy()
    manager, kernel = make(LL, use_fp8=True)
    got = layer(rank, kernel, x, weights, ids, block, True, dtype=fp8)
    assert torch.allclose(got.float(), due, rtol=0.07, atol=0.5)
    packed = types.SimpleNamespace(supports_packed_ue8m0_act_scales=lambda: True)
    kernel.post_init_setup(packed)
    rows, scales, _, _, _ = kernel.prepare(x, weights, ids, EXPERTS, None, False, block)
    assert rows.dtype == fp8 and scales.dtype == torch.int32 and scales.shape == (LOCAL, RANKS * MAX, 1)
    plain = make(LL)[1]
    plain.post_init_setup(packed)
    assert not plain.use_ue8m0_dispatch
    manager.destroy()
    manager, kernel = make(LL)
    for config in (block, token, tensor):
        got = layer(rank, kernel, x, weights, ids, config, True, dtype=fp8)
        assert torch.allclose(got.float(), due, rtol=0.07, atol=0.5)
    manager.destroy()


def nothing_to_send(rank):
    """No tokens anywhere; ids of -1 alone; all rows at one rank."""
    set_up()
    for backend in (HT, LL):
        manager, kernel = make(backend)
        for tokens in (0, 4):
            x, weights, ids = inputs(rank, tokens=tokens)
            for given in (torch.full_like(ids, -1), torch.full_like(ids, 5)):
                given[:, 1:] = -1
                sums = layer(rank, kernel, x, weights, given, vllm.quant_config(), False)
                assert torch.equal(sums.float(), reference(x, weights, given))
        manager.destroy()


def weights_on_input(rank):
    set_up()
    x, weights, ids = inputs(rank, topk=1)
    for backend in (HT, LL):
        manager, kernel = make(backend)
        sums = layer(rank, kernel, x, weights, ids, vllm.quant_config(), True, on_input=True)
        assert torch.equal(sums.float(), reference(x, weights, ids))
        x3, weights3, ids3 = inputs(rank)
        text = "apply_router_weight_on_input is True, but tokens have 3 experts"
        arguments = (x3, weights3, ids3, EXPERTS, None, True, vllm.quant_config())
        refuses(NotImplementedError, text, kernel.prepare, *arguments)
        manager.destroy()


def placed(rank):
    """An id is served by another expert's place, as with round-robin placement."""
    set_up()
    x, weights, ids = inputs(rank)
    table = torch.arange(EXPERTS, device=x.device).view(LOCAL, RANKS).T.reshape(-1).int()
    manager, kernel = make(LL)
    batched = moecomm.vllm.build().Batched(kernel.buffer, MAX, RANKS, global_to_physical=table)
    assert list(batched.persistent_tensors()) == ["global_to_physical"] and kernel.persistent_tensors() == {}
    sums = layer(rank, batched, x, weights, ids, vllm.quant_config(), True)
    assert torch.equal(sums.float(), reference(x, weights, ids, table)) and not table.tolist() == list(range(EXPERTS))
    manager.destroy()


def two_batches(rank):
    """Micro-batches of vLLM: each keeps its own route, and streams are switched where vLLM's schedule needs it."""
    log = set_up()
    state = sys.modules["vllm.v1.worker.ubatching"].state
    state.enabled = True
    x, weights, ids = inputs(rank)
    for backend in (HT, LL):
        manager, kernel = make(backend)
        log.clear()
        outputs, ends = [torch.empty_like(x), torch.empty_like(x)], []
        kept = mock.patch("moecomm.vllm.common.keep_for_stream", lambda _: log.append("keep"))
        kept.start()
        results = []
        for state.batch in (0, 1):
            arguments = ((1 + state.batch) * x, weights, ids, EXPERTS, None, False, vllm.quant_config())
            found = kernel.prepare_async(*arguments)
            results.append(found if isinstance(found, tuple) else (lambda: None, found))
        for state.batch in (0, 1):
            hook, receive = results[state.batch]
            hook()
            rows, their_weights, their_ids = experts(rank, kernel, receive())
            if their_ids is None:
                their_weights, their_ids = weights, ids
            reduce = vllm.TopKWeightAndReduceDelegate()
            found = kernel.finalize_async(outputs[state.batch], rows, their_weights, their_ids, False, reduce)
            ends += found if isinstance(found, tuple) else (found,)
        for end in ends:
            end()
        due = reference(x, weights, ids)
        assert torch.equal(outputs[0].float(), due) and torch.equal(outputs[1].float(), 2 * due)
        if backend == HT:
            # Rows, ids and weights are read on the other stream: those sent, those received, and the experts' rows.
            there = ["yield_and_switch_from_compute_to_comm", *["keep"] * 3, "switch_to_compute_sync"] * 2
            back = [*["keep"] * 3, "yield_and_switch_from_compute_to_comm", "keep", "switch_to_compute"] * 2
            assert log == there + back + ["switch_to_comm", "yield_and_switch_from_comm_to_compute"] * 2, log
        else:
            assert log == ["maybe_run_recv_hook"] * 2, log
        kept.stop()
        state.batch = 7
        refuses(moecomm.InvalidUsage, "prepare has not been called for micro-batch 7", kernel._kept)
        manager.destroy()


def retries(rank):
    """A rank stalls in a step. vLLM sees the fault, and its instruction "retry" goes on with the same classes."""
    set_up()
    deep_ep.configure(timeout_ms=3000 if DEVICE == "cpu" else 6000)
    x, weights, ids = inputs(rank)
    due = reference(x, weights, ids)
    torch.distributed.barrier()  # the first use of a GPU takes seconds
    parallel = sys.modules["vllm.config"].get_current_vllm_config_or_none().parallel_config
    with mock.patch.object(parallel, "enable_fault_tolerance", True):
        manager, kernel = make(LL)
    assert manager.support_fault_tolerance and not manager.query_fault().item()
    torch.distributed.barrier()  # a rank that recovers ends the work of others
    manager.clean_buffers()  # nothing has failed
    step = lambda: layer(rank, kernel, x, weights, ids, vllm.quant_config(), in_halves=True)  # noqa: E731
    for stalled in (0, RANKS - 1):
        assert torch.equal(step().float(), due)
        torch.distributed.barrier()
        if rank != stalled:
            refuses((moecomm.Timeout, moecomm.RemoteError), f"rank {stalled} ", step)
        torch.distributed.barrier()
        assert manager.query_fault().item() and manager.query_fault().shape == ()
        assert manager.query_active_mask().tolist() == [0] * RANKS
        torch.distributed.barrier()
        manager.clean_buffers()
        assert not manager.query_fault().item()
    manager.checkpoint_prepare()
    manager.checkpoint_restore()
    assert not manager.query_fault().item()
    for _ in range(10):
        assert torch.equal(step().float(), due)
    manager.destroy()
    manager.checkpoint_prepare()  # nothing is there
    manager.checkpoint_restore()


def loses(rank, victim):
    """A program that uses vLLM's classes goes on without a rank that has died, and the manager shows it."""
    set_up()
    deep_ep.configure(timeout_ms=60000)
    x, weights, ids = inputs(rank)
    lives = (ids >= 0) & (torch.div(ids, LOCAL, rounding_mode="floor") != victim)
    parallel = sys.modules["vllm.config"].get_current_vllm_config_or_none().parallel_config
    with mock.patch.object(parallel, "enable_fault_tolerance", True):
        manager, kernel = make(LL)
    assert manager.query_active_mask().tolist() == [0] * RANKS
    step = lambda: layer(rank, kernel, x, weights, ids, vllm.quant_config(), in_halves=True)  # noqa: E731
    assert torch.equal(step().float(), reference(x, weights, ids))
    if rank == victim:
        die_within(0.1)
    until_failure(step, (moecomm.RemoteError, moecomm.Timeout, moecomm.Aborted))
    assert manager.query_fault().item() and manager.query_active_mask().tolist() == [0] * RANKS
    refuses(moecomm.RemoteError, f"rank {victim} ", manager.clean_buffers)
    assert manager._buffer.enable_shrink and manager._buffer.recover(60000, losses_max=1) == [victim]
    manager.clean_buffers()  # a retry keeps the loss
    mask = manager.query_active_mask()
    assert mask.tolist() == [int(one == victim) for one in range(RANKS)] and mask.dtype == torch.int32
    for _ in range(5):
        assert not manager.query_fault().item()
        assert torch.equal(step().float(), reference(x, weights, torch.where(lives, ids, -1)))
    manager.destroy()


def refusals(rank):
    set_up()
    x, weights, ids = inputs(rank, tokens=MAX + 1)
    manager, kernel = make(LL)
    go = lambda config, **more: kernel.prepare(
        x[:2], weights[:2], ids[:2], EXPERTS, None, False, config, **more
    )  # noqa: E731
    refuses(NotImplementedError, "defer_input_quant is True", go, vllm.quant_config(), defer_input_quant=True)
    with mock.patch.object(sys.modules["vllm.envs"], "VLLM_DEEPEPLL_NVFP4_DISPATCH", True):
        refuses(NotImplementedError, "VLLM_DEEPEPLL_NVFP4_DISPATCH is 1: unset it", go, vllm.quant_config("nvfp4"))
    config = sys.modules["vllm.config"].get_current_vllm_config_or_none().parallel_config
    with mock.patch.object(config, "enable_fault_tolerance", True):
        refuses(NotImplementedError, "remove --enable-fault-tolerance: vLLM tolerates faults with", make, HT)
    assert not manager.support_fault_tolerance
    text = "a1 has 9 tokens, but max_tokens_per_rank is 8"
    refuses(ValueError, text, kernel.prepare, x, weights, ids, EXPERTS, None, False, vllm.quant_config())
    per_token = vllm.quant_config(torch.float8_e4m3fn, a1_scale=torch.ones(2, 1))
    refuses(NotImplementedError, "a1_scale has 2 elements", go, per_token)
    refuses(NotImplementedError, "block_shape is None", make(LL, use_fp8=True)[1]._require, x[:2],
            vllm.quant_config(), False)  # fmt: skip
    rows, _, meta, _, _ = go(vllm.quant_config())  # the ranks are still in step
    arguments = (torch.empty_like(x[:2]), rows, weights[:2], ids[:2], False)
    refuses(TypeError, "weight_and_reduce_impl is a TopKWeightAndReduceContiguous", kernel.finalize, *arguments,
            vllm.TopKWeightAndReduceContiguous())  # fmt: skip
    assert kernel.finalize(*arguments, vllm.TopKWeightAndReduceDelegate()) is None
    sizes = dict(max_num_tokens_per_dp_rank=8, token_hidden_size=HIDDEN, num_global_experts=8)
    refuses(ValueError, "num_ep_ranks is 3", manager.get_handle, dict(sizes, num_ep_ranks=3, num_local_experts=2))
    refuses(ValueError, "num_local_experts is 3", manager.get_handle, dict(sizes, num_ep_ranks=4, num_local_experts=3))
    refuses(NotImplementedError, "managers only make handles", manager.dispatch, x, weights, ids)
    refuses(NotImplementedError, "managers only make handles", manager.combine, x)
    manager.destroy()
    manager, kernel = make(HT)
    assert deep_ep.settings.current_settings()["tokens_max"] == 48  # vLLM's max_num_batched_tokens
    with mock.patch.dict(os.environ, MOECOMM_TOKENS_MAX="24"), mock.patch.dict(deep_ep.settings._settings):
        del deep_ep.settings._settings["tokens_max"]
        make(HT)[0].destroy()
        assert deep_ep.settings.current_settings()["tokens_max"] == 24
    refuses(TypeError, "get_handle: sms given", manager.get_handle, dict(sms=3))
    refuses(ValueError, "num_experts is 6", kernel.prepare, x, weights, ids, 6, None, False, vllm.quant_config())
    refuses(moecomm.InvalidUsage, "prepare has not been called", kernel.finalize, *arguments, None)
    manager.set_num_sms(7)
    assert deep_ep.Buffer.num_sms == 6 and kernel.buffer._sms(None) == 6
    gpu = dict(
        is_available=lambda: True, get_device_properties=lambda _: types.SimpleNamespace(multi_processor_count=132)
    )
    with mock.patch.multiple(torch.cuda, **gpu):
        manager.set_num_sms(20)
        assert kernel.buffer._sms(None) == 20
        manager.set_num_sms(132)
    assert kernel.buffer._sms(None) == 0  # the library chooses
    manager.destroy()


def strided_output(rank):
    """finalize writes in place where it can, and copies where it cannot. Models in float16 are served too."""
    set_up()
    x, weights, ids = inputs(rank)
    manager, kernel = make(HT)
    for output in (torch.empty(HIDDEN, x.shape[0], dtype=x.dtype, device=x.device).T, x.float()):
        prepared = kernel.prepare(x, weights, ids, EXPERTS, None, False, vllm.quant_config())
        rows, their_weights, their_ids = experts(rank, kernel, prepared)
        kernel.finalize(output, rows, their_weights, their_ids, False, vllm.TopKWeightAndReduceContiguous())
        assert torch.equal(output.float(), reference(x, weights, ids))
    x, weights, ids = inputs(rank, tokens=MAX)
    ids[:, 1:], ids[:, 0] = -1, (rank + 1) % RANKS * LOCAL  # as many rows come as are sent
    rows, _, _, their_ids, their_weights = kernel.prepare(x, weights, ids, EXPERTS, None, False, vllm.quant_config())
    output = rows * (rank * LOCAL + 1) * their_weights.sum(dim=1, keepdim=True).to(rows.dtype)
    # Experts that sum for themselves: vLLM gives them the output to write to where shapes allow it.
    kernel.finalize(output, output, their_weights, their_ids, False, vllm.TopKWeightAndReduceNoOP())
    assert torch.equal(output.float(), reference(x, weights, ids)), (output, reference(x, weights, ids))
    x, weights, ids = inputs(rank)
    half = x.half()
    prepared = kernel.prepare(half, weights, ids, EXPERTS, None, False, vllm.quant_config())
    rows, their_weights, their_ids = experts(rank, kernel, prepared, torch.float16, torch.float16)
    kernel.finalize(half, rows, their_weights, their_ids, False, vllm.TopKWeightAndReduceDelegate())
    assert torch.equal(half.float(), reference(x, weights, ids))
    manager.destroy()


class VllmTest(RanksTest):
    def test_both_formats_in_one_piece_and_in_halves(self):
        self.run_ranks(both_formats)

    def test_quantised_rows(self):
        self.run_ranks(quantised)

    def test_nothing_to_send(self):
        self.run_ranks(nothing_to_send)

    def test_weights_on_the_input(self):
        self.run_ranks(weights_on_input)

    def test_experts_in_other_places(self):
        self.run_ranks(placed)

    def test_two_micro_batches(self):
        self.run_ranks(two_batches)

    def test_a_step_is_retried_after_a_fault(self):
        self.run_ranks(retries)

    def test_a_rank_is_lost(self):
        self.run_and_lose(loses, 1)

    def test_refusals_name_argument_and_value(self):
        self.run_ranks(refusals)

    def test_outputs_of_other_strides_and_types(self):
        self.run_ranks(strided_output)


@unittest.skipIf(torch is None, "torch is not installed")
@unittest.skipIf(MISSING, MISSING)
class InstallTest(unittest.TestCase):
    def run_python(self, code, **environment):
        start = f"import sys; sys.path.insert(0, {TESTS!r}); import support, moecomm.vllm\n"
        cleaned = {name: value for name, value in os.environ.items() if name != "VLLM_PLUGINS"}
        done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, timeout=200,
                              env={**cleaned, **environment})  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_importing_the_adapter_imports_neither_vllm_nor_torch(self):
        self.run_python("assert 'torch' not in sys.modules and 'vllm' not in sys.modules")

    def test_the_plugin_acts_only_where_it_is_chosen(self):
        code = """
import stand_in_vllm
stand_in_vllm.install()
all2all = sys.modules[stand_in_vllm.COMMUNICATORS + ".all2all"]
moecomm.vllm.plugin()
chosen = all2all.DeepEPHTAll2AllManager is not None
moecomm.vllm.plugin()
assert chosen == {chosen}, chosen
if chosen:
    made = moecomm.vllm.build()
    utils = sys.modules[stand_in_vllm.FUSED_MOE + ".all2all_utils"]
    assert all2all.DeepEPHTAll2AllManager is made.HtManager and all2all.DeepEPLLAll2AllManager is made.LlManager
    assert utils.DeepEPHTPrepareAndFinalize is made.Standard and utils.DEEPEP_QUANT_BLOCK_SHAPE == [128, 128]
    assert issubclass(made.Batched, stand_in_vllm.FusedMoEPrepareAndFinalizeModular)
    import torch
    assert utils.DeepEPHTPrepareAndFinalize.maybe_roundup_layer_hidden_size(2881, torch.bfloat16) == 2888
    assert utils.DeepEPLLPrepareAndFinalize.maybe_roundup_layer_hidden_size(2880) == 2944
"""
        self.run_python(code.replace("{chosen}", "True"), VLLM_PLUGINS="a,moecomm")
        self.run_python(code.replace("{chosen}", "False"), VLLM_PLUGINS="moecomms")
        self.run_python(code.replace("{chosen}", "False"))

    def test_an_absent_interface_is_named(self):
        code = """
def expect(text):
    try:
        moecomm.vllm.install()
        raise AssertionError("installed")
    except moecomm.vllm.MissingInterface as error:
        assert text in str(error), error
expect("moecomm.vllm needs vllm, which cannot be imported")
import stand_in_vllm
stand_in_vllm.install()
kernel = sys.modules[stand_in_vllm.FUSED_MOE + ".modular_kernel"]
base = kernel.FusedMoEPrepareAndFinalizeModular
del kernel.FusedMoEPrepareAndFinalizeModular
expect("FusedMoEPrepareAndFinalizeModular in vllm.model_executor.layers.fused_moe.modular_kernel, but vllm of unknown")
kernel.FusedMoEPrepareAndFinalizeModular = base
all2all = sys.modules[stand_in_vllm.COMMUNICATORS + ".all2all"]
del all2all.DeepEPLLAll2AllManager
expect("The interface is that of vLLM 0.17 and later")
assert all2all.DeepEPHTAll2AllManager is None
"""
        self.run_python(code)


if __name__ == "__main__":
    unittest.main()
