"""A rank that refuses a collective call takes part in it all the same, and a fault of the work is raised. No rank waits
for another until the timeout, and the next step is right."""

import time
import unittest

from support import MISSING, moecomm, numpy, world

from moecomm import _native
from moecomm.handle_refusals import HandleRefusals

RANKS, TOKENS, TOPK, HIDDEN, TOKENS_MAX = 3, 3, 2, 8, 4
EXPERTS = 2 * RANKS
LAYOUTS = ("flat", "expert-major", "expert-major-padded", "rank-major")
MODES = ("ht", "ll")
SETTINGS = dict(
    ranks=RANKS, tokens_max=TOKENS_MAX, ll_tokens_max=TOKENS_MAX, row_bytes_max=256, side_bytes_max=64, timeout_ms=20000
)
SECONDS = 10  # far below the timeout


def ids_of(rank):
    """Each token goes to an expert of each of two ranks, whichever rank has it."""
    return numpy.array([[0, 2], [3, 5], [4, 1]], numpy.int32)


class Step:
    """The calls of a right step on one rank. Each may get other arguments."""

    def __init__(self, comm, handle):
        self.comm, self.handle = comm, handle
        self.out = numpy.empty((TOKENS, HIDDEN), numpy.float32)
        self.rows = numpy.ones((TOKENS, HIDDEN), numpy.float32)
        places = 64 if handle.layout in ("flat", "expert-major") else 0
        per = 2 if handle.layout == "expert-major-padded" else 1
        self.arrived = numpy.ones((places or per * RANKS * TOKENS_MAX, HIDDEN), numpy.float32)

    def route(self, **other):
        self.handle.route(**{"topk_idx": ids_of(self.comm.rank), **other})

    def dispatch(self, **other):
        self.handle.dispatch(**{"rows": self.rows, "out_rows": self.arrived, **other})

    def route_dispatch(self, **other):
        given = dict(topk_idx=ids_of(self.comm.rank), topk_weights=None, rows=self.rows, out_rows=self.arrived)
        self.handle.route_dispatch(**{**given, **other})

    def combine(self, **other):
        self.handle.combine(**{"rows": self.arrived, "out": self.out, **other})

    def whole(self, case):
        self.route()
        self.dispatch()
        self.combine()
        numpy.testing.assert_array_equal(self.out, numpy.full_like(self.out, 2))
        case.assertIsNone(self.handle.status())
        case.assertIsNone(self.comm.async_error())


BEFORE = {"route": (), "dispatch": ("route",), "route_dispatch": (), "combine": ("route", "dispatch")}
# Arguments that are refused here, and others that the library refuses.
WRONG = {
    "route": (dict(topk_idx=numpy.zeros((TOKENS, TOPK), numpy.float32)) if numpy else {}, dict(tokens=TOKENS_MAX + 1)),
    "dispatch": (
        dict(rows=numpy.ones((TOKENS, HIDDEN), numpy.float64)) if numpy else {},
        dict(rows=numpy.ones((TOKENS, 2 * HIDDEN), numpy.float32)) if numpy else {},
        dict(rows=numpy.ones((TOKENS, 1), numpy.float32), out_rows=numpy.ones((64, 1), numpy.float32)) if numpy else {},
    ),
    "route_dispatch": (
        dict(rows=None),
        dict(tokens=TOKENS_MAX + 1, topk_idx=numpy.zeros((TOKENS_MAX + 1, TOPK), numpy.int32)) if numpy else {},
    ),
    "combine": (
        dict(rows=numpy.ones((64, HIDDEN), numpy.int32)) if numpy else {},
        dict(rows=numpy.ones((64, 2 * HIDDEN), numpy.float32)) if numpy else {},
        dict(rows=numpy.ones((1, HIDDEN), numpy.float32)) if numpy else {},
        dict(out=None),
        dict(wire="fp9"),
    ),
}


def many_tokens(call, wrong):
    """The arguments of a call with one token too many, which a rank's arrays have."""
    if call == "route" and wrong.get("tokens"):
        return dict(topk_idx=numpy.zeros((TOKENS_MAX + 1, TOPK), numpy.int32))
    if call == "route_dispatch" and "topk_idx" in wrong:
        return dict(topk_idx=wrong["topk_idx"], rows=numpy.ones((TOKENS_MAX + 1, HIDDEN), numpy.float32))
    return wrong


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(numpy is None, "numpy is not installed")
class TakingPartTest(unittest.TestCase):
    def in_every_layout(self, body, **options):
        for layout in LAYOUTS:
            for mode in MODES:
                with self.subTest(layout=layout, mode=mode):

                    def run(comm):
                        shape = dict(layout=layout, mode=mode, tokens_max=TOKENS_MAX, **options)
                        with comm.handle(EXPERTS, TOPK, **shape) as handle:
                            body(comm, Step(comm, handle))

                    begin = time.monotonic()
                    world(run, **SETTINGS)
                    self.assertLess(time.monotonic() - begin, SECONDS)

    def test_a_refusal_on_one_rank_is_raised_by_all(self):
        def body(comm, step):
            for call, wrongs in WRONG.items():
                for wrong in wrongs:
                    if step.handle.layout == "rank-major" and "tokens" in wrong:
                        continue
                    for before in BEFORE[call]:
                        getattr(step, before)()
                    hears = call != "combine" or step.handle.mode == "ht"
                    if comm.rank == 1:
                        with self.assertRaises((ValueError, TypeError), msg=f"{call} {wrong}") as caught:
                            getattr(step, call)(**many_tokens(call, wrong))
                        self.assertNotIn("rank 1 has refused", str(caught.exception))
                    elif hears:
                        with self.assertRaises(moecomm.MoeError, msg=f"{call} {wrong}") as caught:
                            getattr(step, call)()
                        self.assertIn("rank 1 has refused its arguments", str(caught.exception))
                    else:
                        getattr(step, call)()
                    step.whole(self)

        self.in_every_layout(body)

    def test_a_refusal_on_all_ranks_holds_nobody_up(self):
        def body(comm, step):
            for call, wrongs in WRONG.items():
                for before in BEFORE[call]:
                    getattr(step, before)()
                with self.assertRaises((ValueError, TypeError)):
                    getattr(step, call)(**many_tokens(call, wrongs[0]))
                step.whole(self)

        self.in_every_layout(body)

    def test_without_raising_the_status_names_the_rank_and_the_step_goes_on(self):
        def body(comm, step):
            for call in ("route", "dispatch", "route_dispatch"):
                for before in BEFORE[call]:
                    getattr(step, before)()
                if comm.rank == 1:
                    with self.assertRaises((ValueError, TypeError)):
                        getattr(step, call)(**many_tokens(call, WRONG[call][0]))
                else:
                    getattr(step, call)()
                    self.assertIn("rank 1 has refused its arguments", str(step.handle.status()))
                routed = comm.rank != 1 or call == "dispatch"
                if call == "route" and routed:
                    step.dispatch()
                elif call == "route":
                    self.assertRaises(ValueError, step.dispatch)  # the route had no tokens, and it takes part again
                if routed:
                    step.combine()
                else:
                    self.assertRaises(ValueError, step.combine)
                if routed:
                    numpy.testing.assert_array_equal(step.out, numpy.zeros_like(step.out))
                step.whole(self)

        self.in_every_layout(body, on_fault="status")

    def test_an_output_that_is_too_small_ends_the_step_on_all_ranks(self):
        small = numpy.ones((2, HIDDEN), numpy.float32)

        def body(comm, step):
            step.route()
            with self.assertRaises((moecomm.MoeError, ValueError)) as caught:
                step.dispatch(**(dict(out_rows=small) if comm.rank == 1 else {}))
            room = "out_rows and the arrays beside it have room for 2 rows, but"
            here = room if comm.rank == 1 else "rank 1 has refused"
            if step.handle.mode == "ht":
                here = "the output of rank 1 holds 2 rows but"
            self.assertIn(here, str(caught.exception))
            step.whole(self)

        self.in_every_layout(body)

    def test_its_rank_may_combine_all_the_same(self):
        """Works as engines do, which look at the status later."""
        small = numpy.ones((2, HIDDEN), numpy.float32)

        def body(comm, step):
            step.route()
            step.dispatch(**(dict(out_rows=small) if comm.rank == 1 else {}))
            step.combine(**(dict(rows=small) if comm.rank == 1 else {}))
            if step.handle.mode == "ht" or comm.rank == 1:
                self.assertRegex(str(step.handle.status()), "the output of rank 1 holds 2 rows but")
            step.whole(self)

        self.in_every_layout(body, on_fault="status")

    def test_a_fused_dispatch_whose_output_is_too_small_is_raised_when_nobody_waits(self):
        small = numpy.ones((2, HIDDEN), numpy.float32)

        def body(comm, step):
            if step.handle.layout not in ("flat", "expert-major"):
                return
            wrong = dict(out_rows=small) if comm.rank == 1 else {}
            if step.handle.mode == "ht":
                self.assertRaisesRegex(moecomm.InvalidArgument, "holds 2 rows", step.route_dispatch, **wrong)
            else:
                step.route_dispatch(**wrong)
                if comm.rank == 1:
                    self.assertRaisesRegex(moecomm.InvalidArgument, "holds 2 rows", step.combine, rows=small)
                else:
                    step.combine()
            step.whole(self)

        self.in_every_layout(body)

    def test_a_bad_expert_is_raised_by_all_ranks_and_the_next_route_starts_afresh(self):
        def body(comm, step):
            bad = ids_of(comm.rank)
            if comm.rank == 1:
                bad[2, 1] = EXPERTS
            sentence = rf"topkIdx\[token 2\]\[1\] of rank 1 is {EXPERTS}"
            self.assertRaisesRegex(moecomm.InvalidArgument, sentence, step.route, topk_idx=bad)
            self.assertRaisesRegex(moecomm.InvalidArgument, sentence, step.dispatch)  # takes part, and says it again
            self.assertRaisesRegex(moecomm.InvalidArgument, sentence, step.combine)
            step.whole(self)
            self.assertRaisesRegex(moecomm.InvalidArgument, sentence, step.route_dispatch, topk_idx=bad)
            step.whole(self)

        self.in_every_layout(body)

    def test_halves_raise_when_they_are_completed(self):
        small = numpy.ones((2, HIDDEN), numpy.float32)

        def body(comm, step):
            step.route()
            if step.handle.mode == "ht":
                step.dispatch(send_only=True, **(dict(out_rows=small) if comm.rank == 1 else {}))
                self.assertRaisesRegex(moecomm.InvalidArgument, "holds 2 rows", step.handle.complete)
            else:
                step.dispatch(send_only=True)
                step.handle.complete()
            step.whole(self)
            step.route()
            if comm.rank == 1:
                self.assertRaises(TypeError, step.dispatch, send_only=True, rows=numpy.ones((TOKENS, HIDDEN), numpy.int8))
            else:
                step.dispatch(send_only=True)
                self.assertRaisesRegex(moecomm.MoeError, "rank 1 has refused", step.handle.complete)
            step.whole(self)
            step.route()
            step.dispatch(send_only=True)
            if comm.rank == 1:
                self.assertRaisesRegex(TypeError, "^stream: expected", step.handle.complete, stream="x")
            else:
                step.handle.complete()
            step.combine()
            step.whole(self)

        self.in_every_layout(body)

    def test_a_rank_alone_takes_no_part_in_what_it_refuses(self):
        def body(comm):
            with comm.handle(1, 1, tokens_max=TOKENS_MAX) as handle:
                ids, rows = numpy.zeros((1, 1), numpy.int32), numpy.ones((1, HIDDEN), numpy.float32)
                out = numpy.zeros_like(rows)
                handle.route(ids)
                self.assertRaises(TypeError, handle.dispatch, rows, numpy.zeros((1, HIDDEN)))
                handle.dispatch(rows, out)
                numpy.testing.assert_array_equal(out, rows)

        world(body, **{**SETTINGS, "ranks": 1})

    def test_what_bounds_the_tokens_is_named(self):
        many = numpy.zeros((5, 1), numpy.int32)

        def body(comm):
            for mode, variable in (("ht", "MOECOMM_TOKENS_MAX"), ("ll", "MOECOMM_LL_TOKENS_MAX")):
                with comm.handle(2, 1, mode=mode) as handle:
                    self.assertRaisesRegex(ValueError, f"^tokens is 5, must be 0..4 .*{variable}", handle.route, many)
                    handle.set_tokens_bound(2)
                    self.assertRaisesRegex(ValueError, "0..2 .moeHandleSetTokensBound", handle.route, many)
                with comm.handle(2, 1, mode=mode, tokens_max=3) as handle:
                    self.assertRaisesRegex(ValueError, "0..3 .config.tokensMax of the handle", handle.route, many)

        world(body, **{**SETTINGS, "ranks": 2})


class RefusedCombineTest(unittest.TestCase):
    """Needs no library."""

    def test_gradients_travel_on_all_ranks_or_on_none(self):
        handle = HandleRefusals()
        handle._low_latency, handle._summed, handle._sent = True, ("float32", 8, "row"), None
        for given, travel in ((dict(grads=moecomm.Grads(None, None)), True), (dict(grads="wrong"), True), ({}, False)):
            args = handle._refused_combine(given)
            self.assertEqual((args.flags, args.hidden, bool(args.grads)), (_native.moeRefused, 8, travel))
            if travel:
                self.assertIsNone(args.grads.contents.weightGrads)
                self.assertIsNone(args.grads.contents.outWeightGrads)


if __name__ == "__main__":
    unittest.main()
