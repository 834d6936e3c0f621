"""Plans do what the handle's calls do, bit for bit, and refuse what is not like the arrays that they were made with."""

import gc
import threading
import unittest
import weakref

from support import MISSING, moecomm, numpy as np, world

from moecomm import Cast, Describe, Grads, Payload, Ready

try:
    import torch
except ImportError:
    torch = None

EXPERTS_PER_RANK, TOPK, HIDDEN, TOKENS = 2, 2, 128, 3
LAYOUTS = ("flat", "expert-major", "expert-major-padded", "rank-major")
SETTINGS = dict(tokens_max=8, ll_tokens_max=8, row_bytes_max=4 * HIDDEN, side_bytes_max=64)


def random_ids(random, comm, tokens=TOKENS):
    experts = EXPERTS_PER_RANK * comm.nranks
    return np.array([random.permutation(experts)[:TOPK] for _ in range(tokens)], np.int32).reshape(tokens, TOPK)


class Step:
    """Arrays of a step on one rank, and a handle."""

    def __init__(self, comm, seed=0, **shape):
        self.random = np.random.default_rng(100 * comm.rank + seed)
        self.comm = comm
        self.handle = comm.handle(EXPERTS_PER_RANK * comm.nranks, TOPK, **{"tokens_max": 4, "mode": "ll", **shape})
        rows = self.handle._next_layout.rows
        self.room = rows if rows is not None else 4 * TOPK * comm.nranks
        self.rows, self.ids = self.random.random((TOKENS, HIDDEN), np.float32), random_ids(self.random, comm)
        self.weights = self.random.random((TOKENS, TOPK), np.float32)
        self.arrived, self.sums = np.zeros((self.room, HIDDEN), np.float32), np.zeros_like(self.rows)

    def fresh(self):
        """Other contents in other arrays."""
        self.rows, self.ids = self.random.random((TOKENS, HIDDEN), np.float32), random_ids(self.random, self.comm)
        self.weights = self.random.random((TOKENS, TOPK), np.float32)
        self.arrived, self.sums = np.zeros_like(self.arrived), np.zeros_like(self.sums)

    def plan(self, **options):
        dispatch = dict(rows=self.rows, out_rows=self.arrived, **options.pop("dispatch", {}))
        return self.handle.plan(TOKENS, dispatch=dispatch, combine=dict(rows=self.arrived, out=self.sums, **options))

    def by(self, calls, **options):
        """A step by a plan or a handle: what it fills."""
        arrived, sums = np.zeros_like(self.arrived), np.zeros_like(self.sums)
        calls.route_dispatch(self.ids, self.weights, self.rows, arrived)
        calls.combine(arrived * np.float32(1.5), sums, **options)
        return arrived.tobytes(), sums.tobytes()


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(np is None, "numpy is not installed")
class PlanTest(unittest.TestCase):
    def in_every_layout(self, body, ranks=2, **shape):
        for layout in LAYOUTS:
            for mode in ("ht", "ll"):
                with self.subTest(layout=layout, mode=mode, ranks=ranks):

                    def run(comm):
                        step = Step(comm, layout=layout, mode=mode, **shape)
                        body(step)
                        step.handle.destroy()

                    world(run, ranks, **SETTINGS)

    def test_does_what_the_handle_does(self):
        def body(step):
            plan = step.plan(weights="apply")
            for _ in range(4):
                step.fresh()
                self.assertEqual(step.by(plan), step.by(step.handle, weights="apply"))
            self.assertIsNotNone(plan._route_dispatch._known)

        for ranks in (1, 2, 4):
            self.in_every_layout(body, ranks)

    def test_dispatches_and_combines_along_routes_of_the_handle(self):
        def body(step):
            plan = step.plan()
            for _ in range(3):
                step.fresh()
                expected = step.by(step.handle)
                step.handle.route(step.ids, step.weights)
                for _ in range(2):
                    arrived, sums = np.zeros_like(step.arrived), np.zeros_like(step.sums)
                    plan.dispatch(step.rows, arrived)
                    plan.combine(arrived * np.float32(1.5), sums)
                    self.assertEqual((arrived.tobytes(), sums.tobytes()), expected)

        self.in_every_layout(body)

    def test_replaces_the_arrays_of_parts(self):
        def body(comm):
            step = Step(comm, layout="rank-major")
            make = lambda: (np.full(step.room, -5, np.int32), np.zeros((step.room, 4), np.int32))  # noqa: E731
            sent, bias = np.arange(4 * TOKENS, dtype=np.int32).reshape(TOKENS, 4), step.rows.copy()
            kept, more = make(), make()
            options = lambda found: dict(  # noqa: E731
                describe=Describe(out_source_index=found[0]), payloads=[Payload(sent, found[1])]
            )
            plan = step.plan(dispatch=dict(pad_indices=True, **options(kept)), bias0=bias)
            for found in (kept, more, make(), kept):
                step.fresh()
                expected, arrived, sums = make(), np.zeros_like(step.arrived), [np.zeros_like(step.sums) for _ in range(2)]
                step.handle.route_dispatch(step.ids, None, step.rows, arrived, pad_indices=True, **options(expected))
                step.handle.combine(arrived, sums[0], bias0=2 * bias)
                for array in found:
                    array[...] = 7
                given = {} if found is kept else options(found)
                plan.route_dispatch(step.ids, None, step.rows, arrived, **given)
                plan.combine(arrived, sums[1], bias0=2 * bias)
                np.testing.assert_array_equal(found[0], expected[0])
                rows = expected[0] >= 0
                np.testing.assert_array_equal(found[1][rows], expected[1][rows])
                np.testing.assert_array_equal(sums[0], sums[1])
                plan.combine(arrived, sums[1])
                np.testing.assert_allclose(sums[1], sums[0] - bias, rtol=1e-5)
            step.handle.destroy()

        world(body, **SETTINGS)

    def test_leaves_rows_in_view(self):
        def body(comm):
            step = Step(comm, layout="rank-major")
            there = step.handle.view().rows
            dispatch, combine = dict(rows=step.rows, out_rows=None, out_rows_max=0), dict(rows=there, out=step.sums)
            plan = step.handle.plan(TOKENS, dispatch=dispatch, combine=combine)
            for weights in (None, step.weights, None):
                step.fresh()
                plan.route_dispatch(step.ids, weights, step.rows, None)
                plan.combine(there, step.sums)
                places = [[len({int(one) // EXPERTS_PER_RANK for one in entries})] for entries in step.ids]
                np.testing.assert_allclose(step.sums, step.rows * np.array(places), rtol=1e-6)
            step.handle.destroy()

        world(body, **SETTINGS)

    def test_takes_addresses_read_only_arrays_and_those_of_other_frameworks(self):
        def body(comm):
            step = Step(comm, layout="rank-major")
            plan = step.plan()
            expected = step.by(step.handle)
            frozen = step.rows.copy()
            frozen.setflags(write=False)
            kinds = [(lambda array: array.ctypes.data, frozen), (lambda array: array, frozen)]
            kinds.append((lambda array: np.uint64(array.ctypes.data), step.rows))
            if torch is not None:
                kinds.append((torch.from_numpy, step.rows))
                kinds.append((lambda array: torch.nn.Parameter(torch.from_numpy(array), False), step.rows))
            for kind, rows in kinds + kinds:
                for array in (step.arrived, step.sums):
                    array[...] = 0
                plan.route_dispatch(kind(step.ids), kind(step.weights), rows, kind(step.arrived))
                made = step.arrived * np.float32(1.5)
                plan.combine(kind(made), kind(step.sums))
                self.assertEqual((step.arrived.tobytes(), step.sums.tobytes()), expected)
            step.handle.destroy()

        world(body, **SETTINGS)

    def test_of_no_tokens(self):
        def body(comm):
            step = Step(comm, layout="expert-major", mode="ht")
            nothing = np.zeros((0, HIDDEN), np.float32)
            if comm.rank == 0:
                dispatch, combine = dict(rows=nothing, out_rows=step.arrived), dict(rows=step.arrived, out=nothing)
                plan, ids, step.rows = step.handle.plan(0, dispatch=dispatch, combine=combine), None, nothing
            else:
                plan, ids = step.plan(), step.ids
            for _ in range(3):
                plan.route_dispatch(ids, None, step.rows, step.arrived)
                plan.combine(step.arrived, step.sums if comm.rank else nothing)
            step.handle.destroy()

        world(body, **SETTINGS)

    def test_send_only_calls_keep_their_arrays_until_complete(self):
        def body(comm):
            step = Step(comm, layout="rank-major")
            sources = np.zeros(step.room, np.int32)
            dispatch = dict(send_only=True, describe=Describe(out_source_index=sources))
            plan = step.plan(dispatch=dispatch, send_only=True)
            expected = step.by(step.handle)
            for _ in range(3):
                arrived, sums, rows = np.zeros_like(step.arrived), np.zeros_like(step.sums), step.rows.copy()
                alive = weakref.ref(rows)
                plan.route_dispatch(step.ids, step.weights, rows, arrived)
                del rows
                gc.collect()
                self.assertIsNotNone(alive())
                step.handle.complete()
                gc.collect()
                self.assertIsNone(alive())
                plan.combine(arrived * np.float32(1.5), sums)
                step.handle.complete()
                self.assertEqual((arrived.tobytes(), sums.tobytes()), expected)
            step.handle.destroy()

        world(body, **SETTINGS)

    def test_ready_words_may_have_another_value_in_each_step(self):
        def body(comm):
            step = Step(comm, layout="expert-major", mode="ht")
            words = np.zeros(EXPERTS_PER_RANK, np.int32)
            plan = step.plan(ready=Ready(words, value=1))
            for value in (1, 2, 3):
                expected = step.by(step.handle)
                words[...] = value
                self.assertEqual(step.by(plan, ready=Ready(words, value=value)), expected)
            words[...] = 1
            self.assertEqual(step.by(plan), expected)  # would wait for the value of the step before
            step.handle.destroy()

        world(body, **SETTINGS)


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(np is None, "numpy is not installed")
class RefusalTest(unittest.TestCase):
    def test_a_plan_refuses_what_the_handle_refuses(self):
        def body(comm):
            step = Step(comm, layout="rank-major")
            plan, whole, part = step.handle.plan, dict(rows=step.rows, out_rows=step.arrived), dict(rows=step.rows)
            for error, text, call in (
                (TypeError, "dispatch: out_rows is left out", lambda: plan(TOKENS, dispatch=part)),
                (ValueError, r"tokens is 5, expected 0..4", lambda: plan(5, dispatch=whole)),
                (ValueError, r"dispatch: rows has shape \(3, 128\), expected", lambda: plan(2, dispatch=whole)),
                (TypeError, r"dispatch: dispatch\(\) has no keyword 'pad_row'", lambda: plan(3, dispatch={**whole, "pad_row": 1})),
                (ValueError, "combine: wire is 'fp9'", lambda: step.plan(wire="fp9")),
                (TypeError, "dispatch is a list, expected a dictionary", lambda: plan(3, dispatch=[1])),
                (ValueError, "plan: neither dispatch nor combine is given", lambda: plan(3)),
            ):
                with self.assertRaisesRegex(error, text):
                    call()
            step.handle.destroy()
            with self.assertRaisesRegex(moecomm.InvalidUsage, "the handle has been destroyed"):
                plan(TOKENS, dispatch=whole)

        world(body, 1, **SETTINGS)

    def wrong_calls(self, step, plan):
        """(error, text, call) of calls that differ from the plan."""
        rows, arrived, sums = step.rows, step.arrived, step.sums
        wider, other = np.zeros((TOKENS, 2 * HIDDEN), np.float32), rows.astype(np.float16)
        route = lambda *arrays, **parts: lambda: plan.route_dispatch(step.ids, None, *arrays, **parts)  # noqa: E731
        combine = lambda *arrays, **parts: lambda: plan.combine(*arrays, **parts)  # noqa: E731
        return (
            (ValueError, r"rows has shape \(3, 256\), expected \(3, 128\) as in the plan", route(wider, arrived)),
            (TypeError, "rows holds float16, expected float32 as in the plan", route(other, arrived)),
            (ValueError, r"rows is None, expected an array of shape \(3, 128\)", route(None, arrived)),
            (ValueError, "out_rows has shape", route(rows, arrived[1:])),
            (ValueError, "rows is not contiguous", route(np.zeros((TOKENS, 2 * HIDDEN), np.float32)[:, ::2], arrived)),
            (ValueError, "describe is a Describe, expected None as in the plan", route(rows, arrived, describe=Describe())),
            (ValueError, r"topk_idx has shape \(2, 2\)", lambda: plan.route_dispatch(step.ids[:2], None, rows, arrived)),
            (TypeError, "topk_idx holds int64", lambda: plan.route_dispatch(step.ids.astype(np.int64), None, rows, arrived)),
            (ValueError, "out has shape", combine(arrived, wider)),
            (ValueError, "weights is 'apply', expected 'applied' as in the plan", combine(arrived, sums, weights="apply")),
            (TypeError, r"combine\(\) has no keyword 'describe'", combine(arrived, sums, describe=None)),
            (ValueError, "grads is a Grads", combine(arrived, sums, grads=Grads(arrived, sums))),
            (TypeError, "stream: expected an int", combine(arrived, sums, stream="1")),
        )

    def test_arrays_of_another_shape_or_dtype(self):
        def body(comm):
            step = Step(comm, layout="rank-major")
            plan = step.plan(weights="applied")
            for _ in range(2):
                step.by(plan)
                for error, text, call in self.wrong_calls(step, plan):
                    with self.assertRaisesRegex(error, text):
                        call()
            step.handle.destroy()

        world(body, 1, **SETTINGS)

    def test_a_refusal_on_one_rank_does_not_cost_the_others(self):
        def body(comm):
            step = Step(comm, layout="rank-major", mode="ht")
            plan, numbers = step.plan(weights="applied"), range(13)
            expected = step.by(step.handle)
            for number in numbers:
                error, text, call = self.wrong_calls(step, plan)[number]
                combines = number >= 8
                if combines:
                    plan.route_dispatch(step.ids, step.weights, step.rows, step.arrived)
                if comm.rank == 1:
                    with self.assertRaisesRegex(error, text):
                        call()
                else:
                    with self.assertRaisesRegex(moecomm.MoeError, "rank 1 has refused its arguments"):
                        if combines:
                            plan.combine(step.arrived, step.sums)
                        else:
                            plan.route_dispatch(step.ids, step.weights, step.rows, step.arrived)
                self.assertEqual(step.by(plan), expected)
            step.handle.destroy()

        for ranks in (2, 4):
            world(body, ranks, **{**SETTINGS, "timeout_ms": 20000})

    def test_routes_of_other_tokens_and_another_bound(self):
        def body(comm):
            step = Step(comm, layout="flat", mode="ht")
            plan = step.plan()
            with self.assertRaisesRegex(moecomm.InvalidUsage, r"route\(\) has not been called"):
                plan.combine(step.arrived, step.sums)
            step.by(plan)
            step.handle.route(step.ids[:2].copy())
            with self.assertRaisesRegex(ValueError, "the last route has 2 tokens, expected 3 as in the plan"):
                plan.dispatch(step.rows, step.arrived)
            step.handle.set_tokens_bound(3)
            with self.assertRaisesRegex(ValueError, "the handle's tokens bound is 3, expected 4 as in the plan"):
                step.by(plan)
            step.handle.set_tokens_bound(4)
            step.by(plan)
            step.handle.destroy()

        world(body, 1, **SETTINGS)

    def test_outputs_without_room_are_refused_as_by_the_handle(self):
        def body(comm):
            step = Step(comm, layout="expert-major")
            small = np.zeros((3, HIDDEN), np.float32)
            dispatch, combine = dict(rows=step.rows, out_rows=small), dict(rows=small, out=step.sums)
            plan = step.handle.plan(TOKENS, dispatch=dispatch, combine=combine)
            few = np.full((TOKENS, TOPK), -1, np.int32)
            few[0, 0] = 0
            for ids in (few, step.ids, few):
                step.handle.route(ids)
                if ids is few:
                    plan.dispatch(step.rows, small)
                    plan.combine(small, step.sums)
                    np.testing.assert_array_equal(step.sums[0], step.rows[0])
                else:
                    with self.assertRaisesRegex(ValueError, "room for 3 rows, but 6 arrive"):
                        plan.dispatch(step.rows, small)
                    with self.assertRaisesRegex(ValueError, "at least 6 rows"):
                        plan.combine(small, step.sums)
            step.handle.destroy()

        world(body, 1, **SETTINGS)

    def test_calls_that_the_plan_lacks(self):
        def body(comm):
            step = Step(comm, layout="rank-major")
            plan = step.handle.plan(TOKENS, combine=dict(rows=step.arrived, out=step.sums))
            with self.assertRaisesRegex(moecomm.InvalidUsage, "route_dispatch: the plan was made without it"):
                plan.route_dispatch(step.ids, None, step.rows, step.arrived)
            self.assertRegex(repr(plan), "<Plan of combine, tokens 3, <Handle layout rank-major")
            self.assertIs(plan.handle, step.handle)
            self.assertEqual(plan.tokens, TOKENS)
            step.handle.destroy()

        world(body, 1, **SETTINGS)


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(np is None, "numpy is not installed")
class LifetimeTest(unittest.TestCase):
    def test_a_plan_keeps_the_arrays_of_its_keywords_and_no_others(self):
        def body(comm):
            step = Step(comm, layout="rank-major")
            sources = np.zeros(step.room, np.int32)
            plan = step.plan(dispatch=dict(describe=Describe(out_source_index=sources)))
            step.by(plan)
            alive = weakref.ref(sources)
            others = [weakref.ref(array) for array in (step.rows, step.arrived, step.sums, step.ids)]
            del sources
            step.fresh()
            gc.collect()
            self.assertIsNotNone(alive())
            self.assertEqual([other() for other in others], [None] * 4)
            step.by(plan)
            del plan
            gc.collect()
            self.assertIsNone(alive())
            step.handle.destroy()

        world(body, 1, **SETTINGS)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_a_kept_array_that_has_changed_its_shape_is_refused(self):
        def body(comm):
            step = Step(comm, layout="rank-major")
            sources = torch.zeros(step.room, dtype=torch.int32)
            plan = step.plan(dispatch=dict(describe=Describe(out_source_index=sources)))
            step.by(plan)
            sources.resize_(1)
            with self.assertRaisesRegex(ValueError, r"describe.out_source_index has shape \(1,\)"):
                step.by(plan)
            step.handle.destroy()

        world(body, 1, **SETTINGS)

    def test_plans_end_with_their_handle_and_its_communicator(self):
        def body(comm):
            steps = [Step(comm, layout="rank-major") for _ in range(2)]
            plans = [step.plan() for step in steps]
            for step, plan in zip(steps, plans):
                step.by(plan)
            steps[0].handle.destroy()
            for _ in range(2):
                with self.assertRaisesRegex(moecomm.InvalidUsage, "the handle has been destroyed"):
                    steps[0].by(plans[0])
                with self.assertRaisesRegex(moecomm.InvalidUsage, "the handle has been destroyed"):
                    plans[0].combine(steps[0].arrived, steps[0].sums)
                steps[1].by(plans[1])
            comm.destroy()
            with self.assertRaisesRegex(moecomm.InvalidUsage, "the communicator has been destroyed"):
                steps[1].by(plans[1])

        world(body, 1, **SETTINGS)

    def test_a_struct_in_use_is_nobody_elses(self):
        def body(comm):
            step = Step(comm, layout="rank-major")
            plan, expected = step.plan(), step.by(step.handle)
            step.by(plan)
            with plan._route_dispatch._known.prepared.busy, plan._combine._known.prepared.busy:
                self.assertEqual(step.by(plan), expected)
            self.assertEqual(step.by(plan), expected)
            step.handle.destroy()

        world(body, 1, **SETTINGS)

    def test_threads_may_take_turns(self):
        def body(comm):
            step, lock, failures = Step(comm, layout="rank-major"), threading.Lock(), []
            plan, expected = step.plan(), step.by(step.handle)

            def run():
                for _ in range(50):
                    with lock:  # one call of a communicator at a time
                        if step.by(plan) != expected:
                            failures.append(1)

            threads = [threading.Thread(target=run) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            step.handle.destroy()

        world(body, 1, **SETTINGS)


if __name__ == "__main__":
    unittest.main()
