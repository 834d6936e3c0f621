"""How Buffers of moecomm.deep_ep end: replaced, destroyed or collected while handles of their dispatches live, left at
exit, failed. Needs torch."""

import gc
import os
import pathlib
import subprocess
import sys
import time
import unittest
import warnings

from support_ranks import DEVICE, RANKS, SKIP, RanksTest, refuses, torch
from test_deep_ep import EXPERTS, LOCAL, inputs, make, ranks_of, send

if torch is not None:
    import moecomm
    import moecomm.deep_ep as deep_ep

ENDS_SECONDS = 30


def natives_of(buffer):
    return [group.comm.native for group in buffer.routes._groups]


def require_end(natives):
    """Waits until the communicators have ended."""
    end = time.monotonic() + ENDS_SECONDS
    while any(native.pointer is not None for native in natives) and time.monotonic() < end:
        time.sleep(0.01)
    assert natives and all(native.pointer is None for native in natives)


def strict(function):
    """Runs the function with an error in place of the warning that something was dropped without destroy()."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        function()


def backward(rank, buffer, x, ids, received):
    """A backward pass along an earlier dispatch of any Buffer."""
    recv_x, recv_ids, recv_weights, _, handle, _ = received
    copies = ranks_of(ids).sum(dim=1, keepdim=True)
    assert torch.equal(buffer.combine(recv_x, handle, recv_weights)[0], (x.float() * copies).to(x.dtype))
    assert torch.equal(buffer.dispatch(2 * x, handle=handle)[0], 2 * recv_x)


if torch is not None:

    class Dispatch(torch.autograd.Function):
        """Wraps a Buffer as training frameworks do."""

        @staticmethod
        def forward(ctx, x, ids, weights, buffer, handles):
            rows, _, sent, _, ctx.handle, _ = send(buffer, x, ids, weights)
            ctx.buffer = buffer
            handles.append(ctx.handle)
            return rows, sent

        @staticmethod
        def backward(ctx, rows, weights):
            rows, weights, _ = ctx.buffer.combine(rows.contiguous(), ctx.handle, topk_weights=weights.float())
            return rows, None, weights, None, None

    class Combine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, rows, buffer, handle):
            ctx.buffer, ctx.handle = buffer, handle
            return buffer.combine(rows, handle)[0]

        @staticmethod
        def backward(ctx, sums):
            return ctx.buffer.dispatch(sums.contiguous(), handle=ctx.handle)[0], None, None


def training(rank):
    """Three microbatches of four layers make twelve dispatches before the first backward pass, without a setting. Then
    inference uses the handles in turn."""
    buffer = make(in_flight=None)
    _, ids, weights = inputs(rank)
    copies = ranks_of(ids).sum(dim=1, keepdim=True)
    for _ in range(3):
        outputs, handles, leaves = [], [], []
        for _ in range(3):
            x = torch.ones(ids.shape[0], 64, device=ids.device, requires_grad=True)
            leaves.append(x)
            for _ in range(4):
                rows, _ = Dispatch.apply(x, ids, weights, buffer, handles)
                x = Combine.apply(2 * rows, buffer, handles[-1])
            outputs.append(x)
        for output, leaf in zip(outputs, leaves):
            assert torch.equal(output, (2.0 * copies).pow(4).expand_as(output))
            output.sum().backward()
            assert torch.equal(leaf.grad, output)
        assert len(handles[0].route.ring.handles) == 12
    x = torch.ones(ids.shape[0], 64, device=ids.device)
    received = [send(buffer, x, ids, weights) for _ in range(20)]
    assert len(handles[0].route.ring.handles) == 12
    buffer.combine(received[12][0], received[12][4])
    refuses(moecomm.InvalidUsage, "in_flight is 8", buffer.combine, received[7][0], received[7][4])
    buffer.destroy()


def refused_backward(rank):
    """A backward pass of which one rank refuses a call is over on all ranks, which go on with the same handles."""
    buffer = make()
    x, ids, weights = inputs(rank)
    x.requires_grad_()
    for refusing in ("dispatch", "combine"):
        recv_x, _, recv_weights, _, handle, _ = send(buffer, x, ids, weights)
        wrong = rank == 2
        calls = [
            ("dispatch", lambda bad: buffer.dispatch(x[:-1].contiguous() if bad else x, handle=handle)),  # noqa: B023
            ("combine", lambda bad: buffer.combine(recv_x[:-1] if bad else recv_x, handle)),  # noqa: B023
        ]
        for name, call in calls:
            try:
                call(wrong and name == refusing)
                raised = False
            except (ValueError, moecomm.MoeError):
                raised = True
            due, own = name == refusing or refusing == "dispatch", wrong and name == refusing
            assert raised == due or (due and not own and DEVICE != "cpu"), (refusing, name)  # on GPUs it is heard later
        use = handle.route.ring._uses[handle.route.ring._places[handle.route.ticket]]
        assert use.awaits == ("over",), (refusing, use.awaits)
    buffer.destroy()


def replaced(rank):
    """Does as Megatron's get_buffer(), which makes another Buffer for wider rows between forward and backward passes.
    Ranks let go of the first Buffer's handle at different times."""

    def run():
        buffer = make()
        x, ids, weights = inputs(rank)
        received = send(buffer, x, ids, weights)
        natives = natives_of(buffer)
        buffer = make()
        gc.collect()
        send(buffer, x.repeat(1, 4), ids, weights)
        backward(rank, buffer, x, ids, received)
        wide = natives_of(buffer)
        assert all(native.pointer is not None for native in natives + wide)
        if rank % 2:
            received = None
            require_end(natives)
        send(buffer, x, ids, weights)  # works although odd ranks have left the first communicator
        received = None
        require_end(natives)
        assert all(native.pointer is not None for native in wide)
        buffer = None
        require_end(wide)

    strict(run)


def destroyed(rank):
    def run():
        x, ids, weights = inputs(rank)
        first, second = make(), make()
        received, again = send(first, x, ids, weights), send(first, x, ids, weights)
        natives = natives_of(first)
        first.destroy()
        first.destroy()
        handle = received[4]
        refuses(moecomm.InvalidUsage, "the Buffer has been destroyed", first.combine, received[0], handle)
        refuses(moecomm.InvalidUsage, "the Buffer has been destroyed", first.dispatch, x, handle=handle)
        del handle
        for one in (received, again):
            backward(rank, second, x, ids, one)
        del received
        gc.collect()
        backward(rank, second, x, ids, again)
        del one, again
        require_end(natives)
        send(second, x, ids, weights)
        natives = natives_of(second)
        second.destroy()  # no handle is left, so it ends here
        assert natives and all(native.pointer is None for native in natives)

    strict(run)


def hooks(rank):
    """The second half of a low-latency call may be all that is left of a Buffer."""

    def run():
        deep_ep.configure(device=torch.device(DEVICE).type)
        buffer = deep_ep.Buffer(torch.distributed.group.WORLD, low_latency_mode=True)
        x, ids, weights = inputs(rank)
        got = buffer.low_latency_dispatch(x, ids, 8, EXPERTS, use_fp8=False, return_recv_hook=True)
        natives, hook, counts = natives_of(buffer), got[4], got[1]
        del got, buffer
        gc.collect()
        hook()
        everyone = [None] * RANKS
        torch.distributed.all_gather_object(everyone, ids.cpu())
        due = [(torch.cat(everyone) == rank * LOCAL + expert).sum().item() for expert in range(LOCAL)]
        assert counts.tolist() == due
        del hook
        require_end(natives)

    strict(run)


def elastic(rank):
    def run():
        make()  # configures
        buffer = deep_ep.ElasticBuffer(torch.distributed.group.WORLD, num_max_tokens_per_rank=8)
        x, ids, _ = inputs(rank)
        recv_x, _, _, handle, _ = buffer.dispatch(x, ids, num_experts=EXPERTS)
        natives = natives_of(buffer)
        buffer = deep_ep.ElasticBuffer(torch.distributed.group.WORLD, num_max_tokens_per_rank=16)
        gc.collect()
        copies = ranks_of(ids).sum(dim=1, keepdim=True)
        assert torch.equal(buffer.combine(recv_x, handle)[0], (x.float() * copies).to(x.dtype))
        del handle
        require_end(natives)

    strict(run)


def failed(rank):
    """Rank 3 does not come to a dispatch. The Buffer stays failed, and says what works; a new one does."""
    x, ids, weights = inputs(rank)
    buffer = make(timeout_ms=1500)
    received = send(buffer, x, ids, weights)
    sentence = "A new Buffer, which all ranks that are left construct, gets a new communicator"
    kinds = (moecomm.Timeout, moecomm.RemoteError)
    for _ in range(2):
        if rank != RANKS - 1:
            refuses(kinds, sentence, send, buffer, x, ids, weights)
    torch.distributed.barrier()
    refuses(kinds, sentence, send, buffer, x, ids, weights)
    refuses(kinds, sentence, buffer.combine, received[0], received[4])
    natives = natives_of(buffer)
    late = make()
    refuses(kinds, sentence, late.combine, received[0], received[4])  # a handle of the failed one
    buffer.destroy()
    assert all(native.pointer is None for native in natives)  # a handle is left, but of no use
    again = send(late, x, ids, weights)
    assert torch.equal(again[0], received[0])
    late.destroy()
    refuses(moecomm.InvalidUsage, "the communicator has been destroyed", make().combine, received[0], received[4])


def recovered(rank):
    """Ranks come to different numbers of calls before a failure. The same Buffer goes on with all of them."""
    x, ids, weights = inputs(rank)
    torch.distributed.barrier()  # the first use of a GPU takes seconds
    buffer = make(timeout_ms=1500 if DEVICE == "cpu" else 6000)
    received = send(buffer, x, ids, weights)

    def low():
        rows, _, handle, _, _ = buffer.low_latency_dispatch(x.to(torch.bfloat16), ids, 16, EXPERTS, use_fp8=False)
        return buffer.low_latency_combine(rows, ids, weights, handle)[0]

    sums = low()
    kinds = (moecomm.Timeout, moecomm.RemoteError, moecomm.Aborted)
    for turn in range(3):
        torch.distributed.barrier()
        for _ in range(rank):
            call, arguments = (send, (buffer, x, ids, weights)) if turn % 2 else (low, ())
            refuses(kinds, "until all living ranks call recover", call, *arguments)
        torch.distributed.barrier()
        assert buffer.recover(20000) == []
        again = send(buffer, x, ids, weights)
        assert torch.equal(again[0], received[0])
        assert torch.equal(buffer.combine(again[0], again[4])[0], buffer.combine(again[0].clone(), again[4])[0])
        assert torch.equal(low(), sums)
    refuses(moecomm.InvalidUsage, "the communicator has recovered since", buffer.combine, received[0], received[4])
    refuses(ValueError, "timeout_ms", buffer.recover, 2**40)
    buffer.destroy()


AT_EXIT = """
import os, sys
import torch
import moecomm.deep_ep as deep_ep

torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
deep_ep.configure(device="cpu", tokens_max=16)
buffer = deep_ep.Buffer(torch.distributed.group.WORLD, explicitly_destroy=True)
ids = torch.zeros(4, 1, dtype=torch.int64)
options = dict(topk_idx=ids, num_tokens_per_expert=torch.zeros(2))
kept = [buffer.dispatch(torch.ones(4, 16, dtype=torch.bfloat16), **options)[4] for _ in range(2)]
kept.append(kept)
if sys.argv[2] == "destroyed":
    buffer.destroy()
del buffer
print("done")
"""


def suspended(rank):
    """A Buffer of two communicators sleeps. Handles of dispatches before that work afterwards, and their rows are torch's
    own memory."""
    buffer = make()
    x, ids, weights = inputs(rank)
    received = send(buffer, x, ids, weights)
    buffer.low_latency_dispatch(x, ids, x.shape[0], EXPERTS, use_fp8=False)
    assert len(buffer.routes._groups) == 2
    buffer.suspend()
    refuses(moecomm.InvalidUsage, "the communicator is suspended", send, buffer, x, ids, weights)
    refuses(moecomm.InvalidUsage, "the Buffer is suspended already", buffer.suspend)
    buffer.resume()
    for _ in range(2):
        buffer.checkpoint_prepare()
        buffer.checkpoint_prepare()
        refuses(moecomm.InvalidUsage, "the communicator is disconnected", buffer.resume)
        buffer.checkpoint_restore()
        buffer.checkpoint_restore()
    buffer.suspend()
    buffer.checkpoint_prepare()  # also of a Buffer that sleeps
    buffer.checkpoint_restore()
    backward(rank, buffer, x, ids, received)
    again = send(buffer, x, ids, weights)
    assert torch.equal(again[0], received[0])
    rows, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, x.shape[0], EXPERTS, use_fp8=False)
    sums = buffer.low_latency_combine(rows, ids, torch.ones_like(weights), handle)[0]
    copies = (ids >= 0).sum(dim=1, keepdim=True)
    assert torch.equal(sums, (x.float() * copies).to(x.dtype))
    buffer.suspend()
    buffer.destroy()
    refuses(moecomm.InvalidUsage, "has been destroyed", buffer.resume)


class DeepEpLifetimeTest(RanksTest):
    def test_handles_outlive_the_sleep_of_a_buffer(self):
        self.run_ranks(suspended)

    def test_handles_of_training_live_until_their_backward_pass(self):
        self.run_ranks(training)

    def test_a_backward_pass_that_one_rank_refuses_is_over_on_all(self):
        self.run_ranks(refused_backward)

    def test_handles_outlive_a_buffer_that_is_replaced(self):
        self.run_ranks(replaced)

    def test_handles_outlive_a_buffer_that_is_destroyed(self):
        self.run_ranks(destroyed)

    def test_hooks_outlive_their_buffer(self):
        self.run_ranks(hooks)

    def test_handles_outlive_an_elastic_buffer(self):
        self.run_ranks(elastic)

    def test_a_failed_buffer_says_that_a_new_one_works(self):
        self.run_ranks(failed)

    def test_a_failed_buffer_recovers(self):
        self.run_ranks(recovered)


@unittest.skipIf(SKIP, SKIP)
class ExitTest(unittest.TestCase):
    def test_handles_that_are_left_at_exit(self):
        import tempfile

        paths = [str(pathlib.Path(moecomm.__file__).resolve().parents[1]), *sys.path]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in paths if path))
        for how in ("replaced", "destroyed"):
            with self.subTest(how), tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-W", "error::ResourceWarning", "-c", AT_EXIT]
                done = subprocess.run(
                    [*command, os.path.join(folder, "meeting"), how], env=environment, timeout=120, capture_output=True
                )
                self.assertEqual((done.returncode, done.stdout.decode()), (0, "done\n"), done.stderr.decode())
                self.assertNotIn("moecomm", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
