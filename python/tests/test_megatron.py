"""Megatron-Core's flex dispatcher over moecomm.deep_ep against its all-to-all dispatcher, forward and backward, on CPUs.
Needs torch and Megatron-Core: `scripts/engines.sh megatron-core` fetches it."""

import contextlib
import functools
import os
import pathlib
import sys
import unittest
import warnings

from support_ranks import DEVICE, RANKS, RanksTest, torch

ENGINE = pathlib.Path(__file__).resolve().parents[2] / "build/engines/megatron-core"
MISSING = None if (ENGINE / "megatron").exists() else "Megatron-Core is not here: scripts/engines.sh megatron-core"
EXPERTS, TOPK, LAYERS, MICROBATCHES = 8, 2, 4, 3
LOCAL = EXPERTS // RANKS


class NoStream:
    """Stands for a stream and an event of a CPU, where all work has been done."""

    def wait_stream(self, _):
        pass

    synchronize = record_event = lambda self: self


def with_lists(exchange, *arguments, **keywords):
    """An exchange whose split sizes may be tensors. Megatron moves them from a GPU as arrays, and on CPUs not at all."""
    as_list = lambda value: value.tolist() if torch.is_tensor(value) else value  # noqa: E731
    for name in ("output_split_sizes", "input_split_sizes"):
        if name in keywords:
            keywords[name] = as_list(keywords[name])
    return exchange(*arguments, **keywords)


def engine():
    """Megatron's module of dispatchers, with moecomm in DeepEP's place."""
    import moecomm.deep_ep

    moecomm.deep_ep.configure(device="cpu")
    moecomm.deep_ep.install()
    if str(ENGINE) not in sys.path:
        sys.path.append(str(ENGINE))
        stream = NoStream()
        torch.cuda.Stream = torch.cuda.current_stream = lambda *_, **__: stream
        torch.cuda.stream = lambda _: contextlib.nullcontext()
        torch.cuda.current_device = lambda: "cpu"
        torch.distributed.all_to_all_single = functools.partial(with_lists, torch.distributed.all_to_all_single)
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import megatron.core.transformer.moe.token_dispatcher as dispatchers
    return dispatchers


def dispatchers_of(rank, hidden):
    """{name: a dispatcher for each layer}."""
    module = engine()
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer.transformer_config import TransformerConfig

    world = torch.distributed.group.WORLD
    alone = [torch.distributed.new_group([one]) for one in range(RANKS)][rank]
    groups = ProcessGroupCollection()
    groups.ep = groups.tp_ep = world
    groups.tp = groups.expt_tp = groups.cp = groups.tp_cp = alone
    found = {}
    warnings.simplefilter("ignore")  # about settings that are left out
    for name, kind in (("alltoall", module.MoEAlltoAllTokenDispatcher), ("flex", module.MoEFlexTokenDispatcher)):
        config = TransformerConfig(
            num_layers=LAYERS,
            hidden_size=hidden,
            num_attention_heads=4,
            num_moe_experts=EXPERTS,
            moe_router_topk=TOPK,
            expert_model_parallel_size=RANKS,
            moe_token_dispatcher_type=name,
            moe_router_dtype="fp32",
            add_bias_linear=False,
        )
        mine = list(range(rank * LOCAL, (rank + 1) * LOCAL))
        found[name] = [kind(LOCAL, mine, config, groups) for _ in range(LAYERS)]
    warnings.resetwarnings()
    return found


def layer(dispatcher, x, router, experts):
    """A layer as Megatron's MoELayer drives its dispatcher."""
    scores = (x.view(-1, x.shape[-1]) @ router).softmax(dim=1)
    top, ids = scores.topk(TOPK)
    probs = torch.zeros_like(scores).scatter(1, ids, top)
    hidden, probs = dispatcher.dispatch_preprocess(x, probs > 0, probs)
    hidden, probs = dispatcher.token_dispatch(hidden, probs)
    rows, counts, probs = dispatcher.dispatch_postprocess(hidden, probs)
    made = [part @ experts[e] for e, part in enumerate(rows.split([int(count) for count in counts]))]
    rows = torch.cat(made) * probs.unsqueeze(1)
    return x + dispatcher.combine_postprocess(dispatcher.token_combine(dispatcher.combine_preprocess(rows)))


def train(rank, chosen, hidden):
    """Losses and gradients of a step: all forward passes come first, as in a pipeline."""
    torch.manual_seed(5)
    routers = [torch.randn(hidden, EXPERTS).requires_grad_() for _ in range(LAYERS)]
    experts = [torch.randn(EXPERTS, hidden, hidden).div(hidden**0.5)[rank * LOCAL :][:LOCAL] for _ in range(LAYERS)]
    experts = [one.clone().requires_grad_() for one in experts]
    torch.manual_seed(100 + rank)
    inputs = [torch.randn(7 + rank + batch, 2, hidden).requires_grad_() for batch in range(MICROBATCHES)]
    losses = []
    for x in inputs:
        for dispatcher, router, matrices in zip(chosen, routers, experts):
            x = layer(dispatcher, x, router, matrices)
        losses.append(x.square().mean())
    for loss in losses:
        loss.backward()
    return [loss.detach() for loss in losses], [one.grad for one in (*inputs, *routers, *experts)]


def load(rank):
    assert engine().MoEFlexTokenDispatcher is not None


def agree(rank):
    for hidden in (64, 192):  # the second is wider, for which Megatron makes another Buffer
        found = dispatchers_of(rank, hidden)
        for step in range(2):
            (losses, grads), (same_losses, same_grads) = (train(rank, found[name], hidden) for name in ("alltoall", "flex"))
            for one, other in zip([*losses, *grads], [*same_losses, *same_grads]):
                assert torch.allclose(one, other, rtol=1e-4, atol=1e-5), (hidden, step, (one - other).abs().max())


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(DEVICE != "cpu", "on CPUs")
class MegatronTest(RanksTest):
    def test_the_flex_dispatcher_trains_like_the_all_to_all_dispatcher(self):
        self.run_ranks(load)  # by itself, since it takes as long
        self.run_ranks(agree)


if __name__ == "__main__":
    unittest.main()
