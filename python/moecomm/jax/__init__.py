"""moecomm for JAX: dispatch and combine as custom calls of XLA's FFI, with gradients, under jit and shard_map. Needs jax
0.5 or later; moecomm itself does not.

    comms = moecomm.jax.communicators()                  # after jax.distributed.initialize(), or in one process
    moe = moecomm.jax.Dispatcher(comms, experts=64, topk=8, layout="expert-major-padded")
    got = moe.dispatch(rows, topk_idx, topk_weights)     # inside jit
    sums = moe.combine(experts(got.rows), got, weights="apply")"""

from .dispatcher import Dispatched, Dispatcher
from .groups import Communicators, communicators

__all__ = ["Communicators", "Dispatched", "Dispatcher", "communicators"]
