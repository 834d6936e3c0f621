"""moecomm.vllm and moecomm.sglang in the classes of the engines' newest wheels, on CPUs: the fit of our classes, and
the output of a layer, against plain torch in one process. `scripts/engines.sh vllm sglang` fetches the wheels."""

import types
import unittest
from unittest import mock

import engine_wheels
from engine_wheels import missing
from support_ranks import DEVICE, RANKS, TIMEOUT_MS, RanksTest, refuses, torch

if torch is not None:
    import engine_sglang
    import engine_vllm
    import moecomm
    import moecomm.deep_ep as deep_ep
    from stand_in import decode

EXPERTS, TOPK, HIDDEN, INTERMEDIATE, MAX = 8, 3, 256, 64, 8
LOCAL = EXPERTS // RANKS
SHAPE = (EXPERTS, TOPK, HIDDEN, INTERMEDIATE)
HT, LL = "deepep_high_throughput", "deepep_low_latency"
FP8 = dict(quant_dtype=None if torch is None else torch.float8_e4m3fn)


def weights():
    """w1 [experts, 2 * intermediate, hidden] and w2 [experts, hidden, intermediate] of all ranks."""
    random = torch.Generator().manual_seed(3)
    w1 = torch.randn(EXPERTS, 2 * INTERMEDIATE, HIDDEN, generator=random) / HIDDEN**0.5
    return w1.bfloat16(), (torch.randn(EXPERTS, HIDDEN, INTERMEDIATE, generator=random) / INTERMEDIATE**0.5).bfloat16()


def inputs(rank, batch=0, topk=TOPK):
    """Rows, weights, ids of this rank's own tokens; a rank has none."""
    random = torch.Generator().manual_seed(10 * batch + rank)
    tokens = 0 if rank == 2 else 5 + (rank + batch) % 3
    x = torch.randn(tokens, HIDDEN, generator=random).bfloat16()
    scores, ids = torch.rand(tokens, EXPERTS, generator=random).topk(topk)
    return x, scores / scores.sum(dim=1, keepdim=True), ids


def reference(x, scores, ids):
    """All experts on all rows, in float32."""
    w1, w2 = (one.float() for one in weights())
    gate, up = torch.einsum("th,eih->tei", x.float(), w1).chunk(2, dim=-1)
    made = torch.einsum("tei,ehi->teh", torch.nn.functional.silu(gate) * up, w2)
    return (made.gather(1, ids.unsqueeze(2).expand(-1, -1, HIDDEN)) * scores.unsqueeze(2)).sum(dim=1)


def close(found, due, tolerance=0.05):
    assert found.shape == due.shape and torch.allclose(found.float(), due, atol=tolerance), (found.float() - due).abs().max()


def settle():
    deep_ep.settings._settings.clear()
    deep_ep.configure(device="cpu", timeout_ms=TIMEOUT_MS)


def take(a, b=1, *, c=2):
    pass


class MisfitsTest(unittest.TestCase):
    def test_what_another_function_does_not_take_is_named(self):
        for ours, sentences in (
            (lambda *_, **__: None, []),
            (lambda a, b=0, c=0, d=0: None, []),
            (lambda a, c=0: None, ["has no parameter b"]),
            (lambda b, a, c=0: None, ["has a in another place", "needs b, which may be left out"]),
            (lambda a, b=0, c=0, *, d: None, ["needs d, which is not passed"]),
        ):
            self.assertEqual(engine_wheels.misfits(ours, take), sentences)

    def test_stand_ins_that_differ_are_named(self):
        one = type("Kind", (), dict(go=lambda self, a: None, stop=lambda self: None))
        other = type("Kind", (), dict(go=lambda self, b: None))
        sentences = ["Kind.go has no parameter a", "Kind.go needs b, which is not passed", "Kind has no stop"]
        self.assertEqual(engine_wheels.unlike(one, other), sentences)


# ---- vLLM ------------------------------------------------------------------------------------------------------------


def vllm_layer(rank, vllm, kernel, x, scores, ids, on_input=False):
    """A layer as vLLM runs it."""
    mapped = torch.full((EXPERTS,), -1)
    mapped[rank * LOCAL : (rank + 1) * LOCAL] = torch.arange(LOCAL)
    w1, w2 = (one[rank * LOCAL : (rank + 1) * LOCAL] for one in weights())
    return kernel.apply(x, w1, w2, scores, ids, vllm.activation.MoEActivation.SILU, EXPERTS, mapped, on_input)


def vllm_fits(rank):
    vllm = engine_vllm.install()
    assert engine_vllm.report(vllm) == {}, engine_vllm.report(vllm)


def vllm_one_batch(rank):
    vllm = engine_vllm.install()
    x, scores, ids = inputs(rank)
    due = reference(x, scores, ids)
    for backend in (HT, LL):
        for quantised in ({}, dict(FP8, block_shape=[128, 128]), dict(FP8, per_act_token_quant=True), FP8):
            settle()
            manager, kernel = engine_vllm.make_kernel(vllm, backend, SHAPE, quantised, MAX)
            assert type(kernel.prepare_finalize).__name__.startswith("Moecomm") and kernel.can_overlap_shared_experts
            assert kernel.prepare_finalize.use_fp8_dispatch == ("block_shape" in quantised) if backend == LL else True
            for _ in range(2):
                # Without a scale, rows are cast by 0.25.
                close(vllm_layer(rank, vllm, kernel, x, scores, ids), due, 0.3 if quantised else 0.05)
            manager.destroy()


def vllm_weights_on_input(rank):
    vllm = engine_vllm.install()
    x, scores, ids = inputs(rank, topk=1)
    scores = scores / 2
    for backend in (HT, LL):
        settle()
        manager, kernel = engine_vllm.make_kernel(vllm, backend, (EXPERTS, 1, HIDDEN, INTERMEDIATE), {}, MAX)
        weighed = reference((x * scores).bfloat16(), torch.ones_like(scores), ids)
        close(vllm_layer(rank, vllm, kernel, x, scores, ids, on_input=True), weighed)
        manager.destroy()


def vllm_two_batches(rank):
    """Three layers in two micro-batches. The allocator is told of tensors that are made on one stream and read on
    another one."""
    vllm = engine_vllm.install()
    batches = [inputs(rank, batch) for batch in (1, 2)]
    for backend in (HT, LL):
        settle()
        manager, kernel = engine_vllm.make_kernel(vllm, backend, SHAPE, {}, MAX)
        seen = {"compute": 0, "communication": 0}

        def keep(_, seen=seen):
            seen[engine_vllm.current_stream().name] += 1

        def layers(x, scores, ids, kernel=kernel):
            return [vllm_layer(rank, vllm, kernel, x, scores, ids) for _ in range(3)]

        with mock.patch("moecomm.vllm.common.keep_for_stream", keep):
            made = engine_vllm.in_two_batches(vllm, [lambda one=one: layers(*one) for one in batches])
        for batch, found in zip(batches, made):
            for one in found:
                close(one, reference(*batch))
        # Each layer of a batch: rows, ids, weights and the experts' rows on one stream; rows, ids, weights on the other.
        assert seen == (dict(compute=18, communication=24) if backend == HT else dict(compute=0, communication=0)), seen
        manager.destroy()


@unittest.skipIf(missing("vllm"), missing("vllm"))
@unittest.skipIf(DEVICE != "cpu", "on CPUs")
class VllmTest(RanksTest):
    def test_the_adapter_and_its_stand_in_fit(self):
        self.run_ranks(vllm_fits)

    def test_a_layer_in_one_batch(self):
        self.run_ranks(vllm_one_batch)

    def test_weights_on_the_input(self):
        self.run_ranks(vllm_weights_on_input)

    def test_layers_in_two_micro_batches(self):
        self.run_ranks(vllm_two_batches)


# ---- SGLang ----------------------------------------------------------------------------------------------------------


def sglang_set_up():
    settle()
    sglang = engine_sglang.install(tokens_max=MAX)
    sglang.settings.extend, sglang.settings.two_batches = True, False
    return sglang


def sglang_make(sglang, mode="AUTO"):
    sizes = dict(router_topk=TOPK, num_experts=EXPERTS, num_local_experts=LOCAL, hidden_size=HIDDEN)
    return engine_sglang.make(sglang, mode, torch.distributed.group.WORLD, **sizes)


def sglang_experts(rank, sglang, output):
    """The input of combine that SGLang's runners make of an output."""
    mine = [tuple(one[rank * LOCAL + local].float() for one in weights()) for local in range(LOCAL)]

    def expert(local, rows):
        gate, up = (rows @ mine[local][0].T).chunk(2, dim=-1)
        return (torch.nn.functional.silu(gate) * up) @ mine[local][1].T

    normal = sglang.base.DispatchOutputChecker.format_is_deepep_normal(output)
    assert normal != sglang.base.DispatchOutputChecker.format_is_deepep_ll(output)
    rows = torch.zeros(output.hidden_states.shape)
    if normal:
        got = decode(output.hidden_states, output.hidden_states_scale)
        for local in range(LOCAL):
            scores = torch.where(output.topk_ids == local, output.topk_weights, 0).sum(dim=1, keepdim=True)
            rows += expert(local, got) * scores
    else:
        for local, count in enumerate(output.masked_m.tolist()):
            scales = output.hidden_states_scale
            scales = None if scales is None else scales[local, :count]
            rows[local, :count] = expert(local, decode(output.hidden_states[local, :count], scales))
    made = sglang.deepep.DeepEPNormalCombineInput if normal else sglang.deepep.DeepEPLLCombineInput
    return made(rows.bfloat16(), output.topk_ids, output.topk_weights)


def sglang_fits(rank):
    sglang = sglang_set_up()
    assert engine_sglang.report(sglang) == {}, engine_sglang.report(sglang)


def sglang_layer(rank):
    """A layer in both modes, in every type that rows may travel in, and while kernels are compiled."""
    sglang = sglang_set_up()
    x, scores, ids = inputs(rank)
    due, topk = reference(x, scores, ids), types.SimpleNamespace(topk_ids=ids.int(), topk_weights=scores)
    dispatcher = sglang_make(sglang)
    assert type(dispatcher._inners[0]).__name__ == "MoecommDispatcher"
    for sglang.settings.extend in (True, False):
        for kind in sglang.utils.DispatcherOutputDtype:
            dispatcher.set_quant_config(dict(dispatcher_output_dtype=kind.value))
            if kind.value not in ("bf16", "fp8", "int8"):
                refuses(NotImplementedError, f"rows are to travel as {kind.value}", dispatcher.dispatch,
                        hidden_states=x, topk_output=topk)  # fmt: skip
                continue
            output = dispatcher.dispatch(hidden_states=x, topk_output=topk)
            assert output.hidden_states.dtype == (torch.bfloat16 if kind.value == "bf16" else torch.float8_e4m3fn)
            sums = dispatcher.combine(combine_input=sglang_experts(rank, sglang, output))
            close(sums, due, 0.05 if kind.value == "bf16" else 0.3)
    stage = sglang.environ.envs.SGLANG_IN_DEEPGEMM_PRECOMPILE_STAGE
    dispatcher.set_quant_config(dict(dispatcher_output_dtype="bf16"))
    for sglang.settings.extend in (True, False):
        sglang.settings.barriers = 0
        with stage.override(True):
            output = dispatcher.dispatch(hidden_states=x, topk_output=topk)
            dispatcher.combine(combine_input=sglang_experts(rank, sglang, output))
        assert sglang.settings.barriers == 2
    moecomm.sglang.destroy()


def sglang_two_batches(rank):
    """Halves of two batches in turn, and SGLang's hooks around dispatch and combine."""
    sglang = sglang_set_up()
    sglang.settings.two_batches = True
    batches = [inputs(rank, batch) for batch in (1, 2)]
    for sglang.settings.extend in (True, False):
        dispatcher, outputs, sums = sglang_make(sglang), [], []
        dispatcher.set_quant_config(dict(dispatcher_output_dtype="bf16"))
        for index, (x, scores, ids) in enumerate(batches):
            topk = types.SimpleNamespace(topk_ids=ids, topk_weights=scores)
            dispatcher.dispatch_a(hidden_states=x, topk_output=topk, tbo_subbatch_index=index)
        for index in (0, 1):
            outputs.append(dispatcher.dispatch_b(tbo_subbatch_index=index))
        for index in (0, 1):
            given = sglang_experts(rank, sglang, outputs[index])
            dispatcher.combine_a(combine_input=given, tbo_subbatch_index=index)
        for index in (0, 1):
            sums.append(dispatcher.combine_b(tbo_subbatch_index=index))
        for found, batch in zip(sums, batches):
            close(found, reference(*batch))
        inner, calls = dispatcher._inners[0], []
        inner.register_pre_dispatch_hook(lambda *_: calls.append("before"))
        inner.register_post_combine_hook(lambda *_: calls.append("after"))
        dispatcher.register_deepep_dispatch_hook(lambda _: calls.append("between"))
        x, scores, ids = batches[0]
        output = dispatcher.dispatch(hidden_states=x, topk_output=types.SimpleNamespace(topk_ids=ids, topk_weights=scores))
        close(dispatcher.combine(combine_input=sglang_experts(rank, sglang, output)), reference(*batches[0]))
        assert calls == ["before", "between", "after"]
    moecomm.sglang.destroy()


@unittest.skipIf(missing("sglang"), missing("sglang"))
@unittest.skipIf(DEVICE != "cpu", "on CPUs")
class SglangTest(RanksTest):
    def test_the_adapter_and_its_stand_in_fit(self):
        self.run_ranks(sglang_fits)

    def test_a_layer_in_both_modes(self):
        self.run_ranks(sglang_layer)

    def test_two_batches_and_hooks(self):
        self.run_ranks(sglang_two_batches)


if __name__ == "__main__":
    unittest.main()
