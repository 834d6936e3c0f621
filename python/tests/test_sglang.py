"""moecomm.sglang on 4 ranks, against plain torch in one process, with a stand-in for SGLang. Needs torch."""

import logging
import os
import pathlib
import subprocess
import sys
import types
import unittest
from unittest import mock

from support import MISSING
from support_ranks import DEVICE, RANKS, TIMEOUT_MS, RanksTest, device, refuses, torch

if torch is not None:
    import moecomm
    import moecomm.deep_ep as deep_ep
    import moecomm.sglang
    import moecomm.sglang.buffers
    import moecomm.sglang.mode
    import stand_in_sglang as sglang
    from stand_in import decode

TESTS = str(pathlib.Path(__file__).resolve().parent)
TOKENS, MAX, HIDDEN, EXPERTS, TOPK = 6, 8, 256, 8, 3
LOCAL = EXPERTS // RANKS


def tokens_of(rank):
    """Different numbers, and none on one rank."""
    return 0 if rank == 1 else TOKENS + rank % 3 % 2


def inputs(rank, tokens=None):
    """Rows and weights whose sums are exact in bfloat16; ids with some -1, as int32, which SGLang's router makes."""
    random = torch.Generator().manual_seed(77 + rank)
    tokens = tokens_of(rank) if tokens is None else tokens
    x = torch.randint(-2, 3, (tokens, HIDDEN), generator=random).to(torch.bfloat16)
    ids = torch.rand(tokens, EXPERTS, generator=random).topk(TOPK)[1].int()
    ids[torch.rand(tokens, TOPK, generator=random) < 0.2] = -1
    weights = torch.randint(1, 3, (tokens, TOPK), generator=random).float()
    return x.to(device()), types.SimpleNamespace(topk_ids=ids.to(device()), topk_weights=weights.to(device()))


def reference(x, topk):
    """A reference without ranks: each token's weighted sum over its experts. Expert e multiplies by e + 1."""
    factors = torch.where(topk.topk_ids >= 0, topk.topk_weights * (topk.topk_ids + 1), 0.0)
    return x.float() * factors.sum(dim=1, keepdim=True)


def rows_of(rank):
    """The rows that each expert of a rank gets."""
    everyone = [inputs(source)[1].topk_ids for source in range(RANKS)]
    return [sum(int((ids == rank * LOCAL + local).sum()) for ids in everyone) for local in range(LOCAL)]


def set_up(**configured):
    """The stand-in, the plugin and what SGLang does after it, and settings for tests. Returns the stand-in's."""
    found = sglang.install()
    moecomm.sglang.build.cache_clear()
    with mock.patch.dict(os.environ, SGLANG_PLUGINS="other, moecomm"):
        moecomm.sglang.plugin()
    sglang.HookRegistry.apply_hooks()
    deep_ep.settings._settings.clear()
    deep_ep.configure(device=torch.device(DEVICE).type, timeout_ms=TIMEOUT_MS, **configured)
    return found


def make(mode="AUTO", asynchronous=True, **options):
    """Makes a dispatcher as SGLang's create_moe_dispatcher does, by the name that another module has imported."""
    kind = sys.modules["sglang.srt.batch_overlap.two_batch_overlap"].DeepEPDispatcher
    return kind(
        group=torch.distributed.group.WORLD,
        router_topk=TOPK,
        permute_fusion=True,
        num_experts=EXPERTS,
        num_local_experts=LOCAL,
        hidden_size=HIDDEN,
        params_dtype=torch.bfloat16,
        deepep_mode=sglang.DeepEPMode[mode],
        async_finish=asynchronous,
        return_recv_hook=asynchronous,
        **options,
    )


def experts(rank, output):
    """The input of combine that SGLang's runners make of an output."""
    kind = type(output).__name__
    if kind == "DeepEPNormalDispatchOutput":
        local = output.topk_ids
        assert local.dtype == torch.int64 and (output.topk_weights[local < 0] == 0).all()
        assert output.num_recv_tokens_per_expert == [-(-count // 128) * 128 for count in rows_of(rank)]
        factors = torch.where(local >= 0, output.topk_weights * (rank * LOCAL + local + 1), 0.0)
        rows = decode(output.hidden_states, output.hidden_states_scale) * factors.sum(dim=1, keepdim=True)
        rows = rows.to(torch.bfloat16)
    else:
        assert kind == "DeepEPLLDispatchOutput" and output.hidden_states.shape[:2] == (LOCAL, RANKS * MAX)
        assert output.masked_m.tolist() == rows_of(rank) and output.masked_m.dtype == torch.int32
        rows = torch.full(output.hidden_states.shape, float("nan"), dtype=torch.bfloat16, device=device())
        for local, count in enumerate(output.masked_m.tolist()):
            scale = output.hidden_states_scale
            scale = None if scale is None else scale[local, :count]
            got = decode(output.hidden_states[local, :count], scale)
            rows[local, :count] = (got * (rank * LOCAL + local + 1)).to(torch.bfloat16)
    return sglang.CombineInput(rows, output.topk_ids, output.topk_weights)


def layer(rank, dispatcher, x, topk, in_halves):
    """One layer, in one piece or in halves."""
    if not in_halves:
        return dispatcher.combine(combine_input=experts(rank, dispatcher.dispatch(hidden_states=x, topk_output=topk)))
    assert dispatcher.dispatch_a(hidden_states=x, topk_output=topk) is None
    given = experts(rank, dispatcher.dispatch_b())
    assert dispatcher.combine_a(combine_input=given) is None
    return dispatcher.combine_b()


def both_modes(rank):
    found = set_up()
    x, topk = inputs(rank)
    due = reference(x, topk)
    for asynchronous in (False, True):
        dispatcher = make(asynchronous=asynchronous)
        for found.extend in (True, False):
            for in_halves in (False, True):
                with mock.patch.object(dispatcher.engine, "LowLatencyOutput" if found.extend else "NormalOutput", None):
                    sums = layer(rank, dispatcher, x, topk, in_halves)  # the other mode could make no output
                assert sums.dtype == x.dtype and torch.equal(sums.float(), due), (asynchronous, found.extend, in_halves)
    calls = dispatcher.register_deepep_dispatch_hook(lambda given: seen.append(given))
    seen = []
    layer(rank, dispatcher, x, topk, False)
    calls.remove()
    layer(rank, dispatcher, x, topk, False)
    assert seen == [dispatcher]
    # While kernels are compiled, ranks meet before each call, of which a layer has two.
    found.compiles = True
    for found.extend in (True, False):
        found.barriers = 0
        layer(rank, dispatcher, x, topk, False)
        assert found.barriers == 2
    # 64 are less than the least; configure() goes before both.
    assert deep_ep.settings.current_settings()["tokens_max"] == moecomm.sglang.buffers.TOKENS_LEAST
    assert len(moecomm.sglang.buffers._buffers) == 1
    moecomm.sglang.suspend()
    refuses(moecomm.InvalidUsage, "the communicator is suspended", dispatcher.dispatch, x, topk)
    moecomm.sglang.resume()
    moecomm.sglang.checkpoint_prepare()
    moecomm.sglang.checkpoint_prepare()
    moecomm.sglang.checkpoint_restore()
    moecomm.sglang.checkpoint_restore()
    dispatcher = make()
    for found.extend in (True, False):
        assert torch.equal(layer(rank, dispatcher, x, topk, False).float(), reference(x, topk))
    # With no failure all ranks may recover too. Routes of before are void, and layers go on.
    torch.distributed.barrier()
    assert list(moecomm.sglang.recover(TIMEOUT_MS).values()) == [[]]
    for found.extend in (True, False):
        assert torch.equal(layer(rank, make(), x, topk, False).float(), reference(x, topk))
    moecomm.sglang.destroy()
    moecomm.sglang.destroy()


def fixed_modes(rank):
    found = set_up(tokens_max=16)
    x, topk = inputs(rank)
    for mode, kind in (("NORMAL", "DeepEPNormalDispatchOutput"), ("LOW_LATENCY", "DeepEPLLDispatchOutput")):
        dispatcher = make(mode)
        for found.extend in (True, False):
            output = dispatcher.dispatch(x, topk)
            assert type(output).__name__ == kind
            assert torch.equal(dispatcher.combine(experts(rank, output)).float(), reference(x, topk))
    mean = (x.shape[0] * RANKS * TOPK + EXPERTS) // EXPERTS
    assert output.expected_m == mean, (output.expected_m, mean)
    assert deep_ep.settings.current_settings()["tokens_max"] == 16
    moecomm.sglang.destroy()


def quantised(rank):
    found = set_up(tokens_max=16)
    found.dtype = sglang.DispatcherOutputDtype.FP8
    x, topk = inputs(rank)
    due = reference(x, topk)
    dispatcher = make()
    for found.extend in (True, False):
        dispatcher.dispatch_a(x, topk)
        output = dispatcher.dispatch_b()
        assert output.hidden_states.dtype == torch.float8_e4m3fn
        assert output.hidden_states_scale.shape[-1] == HIDDEN // 128
        sums = dispatcher.combine(experts(rank, output))
        assert torch.allclose(sums.float(), due, rtol=0.07, atol=0.5), (sums.float() - due).abs().max()
    # The layer's quantisation goes before the default.
    dispatcher.set_quant_config(dict(dispatcher_output_dtype="bf16"))
    for found.extend in (True, False):
        assert dispatcher.quant_config == dict(dispatcher_output_dtype="bf16")
        assert torch.equal(layer(rank, dispatcher, x, topk, True).float(), due)
    dispatcher.set_quant_config(dict(dispatcher_output_dtype="nvfp4"))
    for found.extend in (True, False):
        refuses(NotImplementedError, "rows are to travel as nvfp4", dispatcher.dispatch_a, x, topk)
    dispatcher.set_quant_config(dict(input_global_scale=torch.ones(1)))
    refuses(NotImplementedError, "as nvfp4, since input_global_scale is set", dispatcher.dispatch_a, x, topk)
    # int8 is for NPUs: a process says once that it is not.
    dispatcher.set_quant_config(dict(dispatcher_output_dtype="int8"))
    moecomm.sglang.mode._warn_of_int8.cache_clear()
    with mock.patch.object(logging.getLogger("moecomm.sglang.mode"), "warning") as warned:
        for found.extend in (True, False):
            output = dispatcher.dispatch(x, topk)
            assert output.hidden_states.dtype == torch.float8_e4m3fn
            dispatcher.combine(experts(rank, output))
    assert warned.call_count == 1
    # A dispatcher of a single mode does so too, and a runner that quantises for itself.
    dispatcher.set_quant_config(dict(normal_dispatcher_output_dtype="bf16"))
    cutlass = make(runner_backend=sglang.runner("cutlass"))
    for found.extend in (True, False):
        output = dispatcher.dispatch(x, topk)
        assert (output.hidden_states_scale is None) == found.extend
        dispatcher.combine(experts(rank, output))
        assert torch.equal(layer(rank, cutlass, x, topk, True).float(), due)
    dispatcher.set_quant_config({})
    gemm = sys.modules["sglang.srt.layers.deep_gemm_wrapper"]
    gemm.DEEPGEMM_BLACKWELL, found.extend = True, False
    output = dispatcher.dispatch(x, topk)
    assert output.hidden_states_scale.dtype == torch.int32  # packed powers of two
    moecomm.sglang.destroy()


def nothing_to_send(rank):
    found = set_up(tokens_max=16)
    dispatcher = make()
    for tokens in (0, 4):
        x, topk = inputs(rank, tokens)
        for topk.topk_ids[:, 0] in (-1, 5):
            topk.topk_ids[:, 1:] = -1
            for found.extend in (True, False):
                output = dispatcher.dispatch(x, topk)
                rows = output.hidden_states
                if found.extend:
                    rows = rows * (output.topk_weights.sum(dim=1, keepdim=True) * 6).to(rows.dtype)
                else:
                    rows = rows * 6
                sums = dispatcher.combine(sglang.CombineInput(rows, output.topk_ids, output.topk_weights))
                assert torch.equal(sums.float(), reference(x, topk))
    moecomm.sglang.destroy()


def captured(rank):
    """The event of dispatch_a comes behind all work on what dispatch_b sends, which waits for nothing else."""
    set_up(tokens_max=16).extend = True
    dispatcher, order = make(), []
    x, topk = inputs(rank)
    to, capture = torch.Tensor.to, deep_ep.Buffer.capture

    def converts(*arguments, **keywords):
        order.append("to")
        return to(*arguments, **keywords)

    def captures():
        order.append("capture")
        return capture()

    with mock.patch.object(torch.Tensor, "to", converts), mock.patch.object(deep_ep.Buffer, "capture", captures):
        dispatcher.dispatch_a(hidden_states=x, topk_output=topk)
    assert order[-1] == "capture" and "to" in order, order
    dispatcher.combine(experts(rank, dispatcher.dispatch_b()))
    moecomm.sglang.destroy()


def two_batches(rank):
    """Two dispatchers of a layer, each half of one between the other's."""
    found = set_up(tokens_max=16)
    x, topk = inputs(rank)
    due = reference(x, topk)
    for found.extend in (True, False):
        one, two = make(), make()
        for _ in range(3):
            one.dispatch_a(x, topk)
            two.dispatch_a(2 * x, topk)
            first = experts(rank, one.dispatch_b())
            one.combine_a(first)
            second = experts(rank, two.dispatch_b())
            two.combine_a(second)
            assert torch.equal(one.combine_b().float(), due)
            assert torch.equal(two.combine_b().float(), 2 * due)
    moecomm.sglang.destroy()


def recorded(rank):
    found = set_up(tokens_max=16, domain_size=2)
    x, topk = inputs(rank)
    dispatcher, recorder = make(), found.recorder
    for found.extend in (True, False):
        layer(rank, dispatcher, x, topk, False)
    ((counts, per_rank, per_domain, per_expert),) = recorder.normal
    assert counts == [-(-count // 128) * 128 for count in rows_of(rank)]
    ids = topk.topk_ids
    assert per_expert.tolist() == [int((ids == expert).sum()) for expert in range(EXPERTS)]
    assert per_rank.shape == (RANKS,) and per_domain.shape == (2,)
    assert [counts.tolist() for counts in recorder.low_latency] == [rows_of(rank)]
    recorder.recording, found.extend = False, True
    with mock.patch.object(deep_ep.Buffer, "get_dispatch_layout", side_effect=AssertionError("computed")):
        layer(rank, dispatcher, x, topk, False)
    assert recorder.normal[1][1:] == (None, None, None)
    moecomm.sglang.destroy()


def refusals(rank):
    found = set_up(tokens_max=16)
    x, topk = inputs(rank, tokens=MAX + 1)
    dispatcher = make()
    refuses(moecomm.InvalidUsage, "combine_a is called, but dispatch_a is due", dispatcher.combine_a, None)
    refuses(moecomm.InvalidUsage, "dispatch_b is called, but dispatch_a is due", dispatcher.dispatch_b)
    found.extend = False
    text = "hidden_states has 9 tokens, but SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK is 8"
    refuses(ValueError, text, dispatcher.dispatch, x, topk)
    x, topk = inputs(rank)
    output = dispatcher.dispatch(x, topk)
    refuses(moecomm.InvalidUsage, "dispatch_a is called, but combine_a is due", dispatcher.dispatch_a, x, topk)
    given = experts(rank, output)
    wrong = sglang.CombineInput(given.hidden_states[:, 1:].contiguous(), given.topk_ids, given.topk_weights)
    refuses(ValueError, "x has shape", dispatcher.combine_a, wrong)
    given = experts(rank, dispatcher.dispatch(x, topk))  # the refused half has ended its step
    assert torch.equal(dispatcher.combine(given).float(), reference(x, topk))
    refuses(NotImplementedError, "remove --enable-single-batch-overlap", dispatcher.set_overlap_args, None, None)
    dispatcher.clear_overlap_args()
    refuses(TypeError, "later given: arguments of a later SGLang", make, later=1)
    moecomm.sglang.destroy()


def bounds(rank):
    """The most tokens of a rank, by SGLang's arguments."""
    of = lambda **args: moecomm.sglang.buffers.tokens_of(types.SimpleNamespace(**args))  # noqa: E731
    assert of(chunked_prefill_size=8192, max_prefill_tokens=16384) == 8192
    assert of(chunked_prefill_size=-1, max_prefill_tokens=16384) == 16384
    assert of(chunked_prefill_size=None, max_prefill_tokens=512) == 4096
    assert of() == 0 == moecomm.sglang.buffers.tokens_of(None)


class SglangTest(RanksTest):
    def test_both_modes_in_one_piece_and_in_halves(self):
        self.run_ranks(both_modes)

    def test_modes_that_do_not_change(self):
        self.run_ranks(fixed_modes)

    def test_quantised_rows(self):
        self.run_ranks(quantised)

    def test_nothing_to_send(self):
        self.run_ranks(nothing_to_send)

    def test_events_cover_what_is_sent(self):
        self.run_ranks(captured)

    def test_two_batches(self):
        self.run_ranks(two_batches)

    def test_what_the_recorder_is_told(self):
        self.run_ranks(recorded)

    def test_refusals_name_argument_and_value(self):
        self.run_ranks(refusals)

    def test_the_bound_of_tokens(self):
        self.run_ranks(bounds)


@unittest.skipIf(torch is None, "torch is not installed")
@unittest.skipIf(MISSING, MISSING)
class InstallTest(unittest.TestCase):
    def run_python(self, code, **environment):
        start = f"import sys; sys.path.insert(0, {TESTS!r}); import support, moecomm.sglang\n"
        cleaned = {name: value for name, value in os.environ.items() if name != "SGLANG_PLUGINS"}
        done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, timeout=200,
                              env={**cleaned, **environment})  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_importing_the_adapter_imports_neither_sglang_nor_torch(self):
        self.run_python("assert 'torch' not in sys.modules and 'sglang' not in sys.modules")

    def test_the_plugin_acts_only_where_it_is_chosen(self):
        code = """
import stand_in_sglang
stand_in_sglang.install()
moecomm.sglang.plugin()
target = stand_in_sglang.DEEPEP + ".DeepEPDispatcher"
assert list(stand_in_sglang.HookRegistry.hooks) == ([target] if {chosen} else [])
assert not stand_in_sglang.HookRegistry.patched  # other plugins register first
"""
        self.run_python(code.replace("{chosen}", "True"), SGLANG_PLUGINS="moecomm ,a")
        self.run_python(code.replace("{chosen}", "False"), SGLANG_PLUGINS="a")
        self.run_python(code.replace("{chosen}", "False"))

    def test_install_replaces_the_dispatcher_everywhere(self):
        code = """
import stand_in_sglang
stand_in_sglang.install()
moecomm.sglang.install(); moecomm.sglang.install()
made = moecomm.sglang.build()
assert issubclass(made, stand_in_sglang.BaseDispatcher)
for name in (stand_in_sglang.DEEPEP, "sglang.srt.batch_overlap.two_batch_overlap"):
    assert sys.modules[name].DeepEPDispatcher is made
assert len(stand_in_sglang.HookRegistry.hooks[stand_in_sglang.DEEPEP + ".DeepEPDispatcher"]) == 1
"""
        # Parts that are not replaced find DeepEP's numbers, and an imported DeepEP stays.
        self.run_python(code + "import deep_ep, moecomm.deep_ep; assert deep_ep is moecomm.deep_ep")
        other = "import types; other = sys.modules['deep_ep'] = types.ModuleType('deep_ep')\n"
        self.run_python(other + code + "assert sys.modules['deep_ep'] is other")

    def test_an_absent_interface_is_named(self):
        code = """
def expect(text):
    try:
        moecomm.sglang.install()
        raise AssertionError("installed")
    except moecomm.sglang.MissingInterface as error:
        assert text in str(error), error
expect("moecomm.sglang needs sglang, which cannot be imported")
assert "deep_ep" not in sys.modules
import stand_in_sglang
stand_in_sglang.install()
mode = sys.modules[stand_in_sglang.MOE + ".utils"]
del mode.get_deepep_output_dtype
expect("get_deepep_output_dtype in sglang.srt.layers.moe.utils, but sglang of unknown version does not have it")
stand_in_sglang.install()
from stand_in import remove
remove("sglang.srt.plugins")
del sys.modules["sglang.srt"].plugins
expect("The interface is that of SGLang 0.5.23, whose plugins")
assert not stand_in_sglang.HookRegistry.hooks
"""
        self.run_python(code)


if __name__ == "__main__":
    unittest.main()
