"""Calls by address do what the handle's calls do, with one struct for all numbers of tokens and rows. Needs numpy."""

import unittest

from support import MISSING, RANKS, numpy as np, world

from moecomm import Describe, errors
from moecomm.arrays import address
from moecomm.own_calls import OwnBeginning, OwnCombine, OwnDispatch, bound_of, holds_all

EXPERTS, TOPK, HIDDEN, TOKENS_MAX = 4, 2, 16, 8


def inputs(rank, tokens):
    random = np.random.default_rng(7 * tokens + rank)
    rows = random.integers(0, 9, (tokens, HIDDEN)).astype(np.float32)
    return rows, random.permuted(np.tile(np.arange(EXPERTS, dtype=np.int32), (tokens, 1)), axis=1)[:, :TOPK].copy()


def outputs(count):
    return np.zeros((count, HIDDEN), np.float32), np.zeros((count, TOPK), np.int32), np.zeros((count, TOPK), np.float32)


def step(handle, rows, ids):
    """Everything that a step returns, by the handle's own calls."""
    handle.route(ids)
    out, out_ids, weights = outputs(handle.counts().rows)
    handle.dispatch(rows, out, describe=Describe(out_ids, weights))
    sums = np.zeros_like(rows)
    handle.combine(out, sums)
    return out, out_ids, weights, sums


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(np is None, "numpy is not installed")
class OwnCallsTest(unittest.TestCase):
    def test_one_struct_serves_all_handles_and_all_numbers_of_tokens_and_rows(self):
        def body(comm):
            handles = [comm.handle(EXPERTS, TOPK, mode="ht") for _ in range(3)]
            begins = sends = sums_up = None
            for tokens in (5, 1, 0, 7):
                rows, ids = inputs(comm.rank, tokens)
                due = step(handles[0], rows, ids)
                for handle in handles[1:]:
                    begins = begins or OwnBeginning(handle, tokens, rows)
                    begins.route_dispatch(handle, address(ids), 0, tokens, [address(rows)], 0)
                    found = outputs(handle.counts().rows)
                    if sends is None:
                        sends = OwnDispatch(handle, tokens, rows, found[0], describe=Describe(*found[1:]))
                    addresses = [address(array) for array in (rows, *found)]
                    sends.complete(handle, addresses, len(found[0]), 0)
                    sums = np.zeros_like(rows)
                    sums_up = sums_up or OwnCombine(handle, tokens, found[0], sums)
                    sums_up.combine(handle, [address(found[0]), address(sums)], 0)
                    for one, other in zip((*found, sums), due):
                        np.testing.assert_array_equal(one, other)

        world(body)

    def test_a_route_and_its_dispatch_in_one_call(self):
        def body(comm):
            handle = comm.handle(EXPERTS, TOPK, mode="ht")
            room, sends = RANKS * TOKENS_MAX, None
            for tokens in (3, 6):
                rows, ids = inputs(comm.rank, tokens)
                due = step(handle, rows, ids)
                found = outputs(room)
                if sends is None:
                    described = Describe(*found[1:])
                    sends = OwnDispatch.with_route(handle, ids, None, rows, found[0], describe=described)
                    wrong = rows.astype(np.int16)[:, : HIDDEN - 1]
                    with self.assertRaisesRegex(ValueError, "rows"):
                        OwnDispatch.with_route(handle, ids, None, wrong, found[0])
                    with self.assertRaisesRegex(TypeError, "topk_idx"):
                        OwnDispatch.with_route(handle, rows, None, rows, found[0])
                addresses = [address(array) for array in (rows, *found)]
                sends.route_dispatch(handle, address(ids), 0, tokens, addresses, room, 0)
                for one, other in zip(found, due):
                    np.testing.assert_array_equal(one[: len(other)], other)

        world(body)

    def test_a_dispatch_that_was_begun_may_be_dropped(self):
        def body(comm):
            handle = comm.handle(EXPERTS, TOPK, mode="ht", tokens_max=TOKENS_MAX)
            rows, ids = inputs(comm.rank, 3)
            begins = OwnBeginning(handle, 3, rows)
            begins.route_dispatch(handle, address(ids), 0, 3, [address(rows)], 0)
            with self.assertRaisesRegex(errors.InvalidUsage, "awaits moeComplete"):
                handle.route(ids)
            handle.complete()
            step(handle, rows, ids)

        world(body)

    def test_a_refused_beginning_is_heard_of(self):
        def body(comm):
            handle = comm.handle(EXPERTS, TOPK, mode="ht", tokens_max=TOKENS_MAX)
            tokens = TOKENS_MAX + 1 if comm.rank == 0 else 1
            rows, ids = inputs(comm.rank, tokens)
            begins = OwnBeginning(handle, 1, rows[:1])
            call = lambda: begins.route_dispatch(handle, address(ids), 0, tokens, [address(rows)], 0)  # noqa: E731
            if comm.rank == 0:
                with self.assertRaisesRegex(errors.InvalidArgument, "tokens is 9"):
                    call()
                handle.take_part("route_dispatch", errors.InvalidArgument("tokens is 9"))
            else:
                call()
                with self.assertRaisesRegex(errors.MoeError, "rank 0 has refused its arguments"):
                    handle.complete()
            step(handle, *inputs(comm.rank, 2))

        world(body)

    def test_a_combine_needs_a_look_if_something_is_unlike_the_dispatch(self):
        def body(comm):
            handle = comm.handle(EXPERTS, TOPK)
            self.assertFalse(holds_all(handle, 3, 100))
            rows, ids = inputs(comm.rank, 3)
            count = len(step(handle, rows, ids)[0])
            self.assertTrue(holds_all(handle, 3, count))
            self.assertFalse(holds_all(handle, 3, count - 1))
            self.assertFalse(holds_all(handle, 2, count))
            self.assertGreater(bound_of(handle), 5)
            handle.set_tokens_bound(5)
            self.assertEqual(bound_of(handle), 5)
            self.assertFalse(holds_all(handle, 3, count))

        world(body)


if __name__ == "__main__":
    unittest.main()
