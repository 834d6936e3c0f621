"""moecomm for torch: communicators from process groups, dispatch and combine with gradients, operators that
torch.compile traces, and window memory as tensors. Needs torch 2.4 or later; moecomm itself does not.

    comm = moecomm.torch.communicator(group)
    moe = moecomm.torch.Dispatcher(comm, experts=64, topk=8, layout="expert-major")
    got = moe.dispatch(rows, topk_idx, topk_weights)
    sums = moe.combine(experts(got.rows, got.rows_per_expert), got, weights="apply")"""

from .dispatcher import Dispatched, Dispatcher
from .groups import communicator
from .memory import WindowTensor, window_tensor
from .pool import release_window_pool, window_pool

__all__ = [
    "Dispatched",
    "Dispatcher",
    "WindowTensor",
    "communicator",
    "release_window_pool",
    "window_pool",
    "window_tensor",
]
