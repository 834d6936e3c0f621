"""Every array argument of route, dispatch and combine is wrong in every way. Each time the error names the argument,
no byte outside of an array changes, and the communicator goes on with the next route."""

import re
import unittest

from support import MISSING, RANKS, Guards, moecomm, numpy, world

try:
    import torch
except ImportError:
    torch = None

TOKENS, TOPK, EXPERTS, HIDDEN, SIDE, TOKENS_MAX = 3, 2, 4, 8, 16, 4
LOCAL = EXPERTS // RANKS
LAYOUTS = ("flat", "expert-major", "expert-major-padded", "rank-major")
# Arguments whose rows say nothing about those of other arguments. They may have strides of their own.
STRIDED = ("payloads.rows", "payloads.out")
PARTS = {"describe": moecomm.Describe, "grads": moecomm.Grads, "payloads": moecomm.Payload}
SETTINGS = dict(
    tokens_max=TOKENS_MAX, ll_tokens_max=TOKENS_MAX, row_bytes_max=256, side_bytes_max=64, heap_bytes=1 << 16
)


def keywords_of(arguments):
    """Keywords of a call, whose parts have names such as "describe.out_topk_idx" among the arguments."""
    found, parts = {}, {}
    for name, value in arguments.items():
        part, _, field = name.rpartition(".")
        (parts.setdefault(part, {}) if part else found)[field] = value
    made = {part: PARTS[part](**fields) for part, fields in parts.items()}
    return {**found, **{part: [value] if part == "payloads" else value for part, value in made.items()}}


class OnlyDlpack:
    """Wraps a numpy array and exposes only __dlpack__."""

    def __init__(self, array):
        self._array = array

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **keywords):
        return self._array.__dlpack__(**keywords)


def capsules_have_versions():
    """Whether numpy's capsules tell if an array may be written: from numpy 2.1 on. Others are refused as outputs."""
    try:
        numpy.zeros(1).__dlpack__(max_version=(1, 0))
    except TypeError:
        return False
    return True


def as_dlpack(array):
    return OnlyDlpack(array)


def as_numpy(array):
    return array


def as_torch(array):
    return torch.from_numpy(array)


def tokens_of(rank):
    """(experts, weights, rows) of a rank. Each token goes to one local and one remote expert."""
    experts = numpy.array([[0, 2], [3, 1], [2, 0]], numpy.int32)
    weights = numpy.array([[1, 2], [3, 4], [5, 6]], numpy.float32) + 10 * rank
    rows = numpy.arange(TOKENS * HIDDEN, dtype=numpy.float32).reshape(TOKENS, HIDDEN) + 100 * rank
    return experts, weights, rows


class Step:
    """The arguments of one rank's step, all between guard bytes, by call and name."""

    def __init__(self, rank, layout, rows):
        self.guards = Guards()
        self.layout = layout
        experts, weights, self.tokens = tokens_of(rank)
        like, empty = self.guards.like, self.guards.empty
        by_expert = layout.startswith("expert-major")
        self.route = dict(topk_idx=like(experts), topk_weights=like(weights))
        self.dispatch = dict(
            rows=like(self.tokens),
            out_rows=empty((rows, HIDDEN), numpy.float32),
        )
        self.dispatch.update(
            {
                "payloads.rows": like(numpy.arange(TOKENS * SIDE, dtype=numpy.uint8).reshape(TOKENS, SIDE)),
                "payloads.out": empty((rows, SIDE), numpy.uint8),
                "describe.out_topk_weights": empty((rows,) if by_expert else (rows, TOPK), numpy.float32),
                "describe.out_source_index": empty((rows,), numpy.int32),
            }
        )
        if not by_expert:
            self.dispatch["describe.out_topk_idx"] = empty((rows, TOPK), numpy.int32)
        if layout == "expert-major":
            self.dispatch["describe.out_expert_offsets"] = empty((LOCAL + 1,), numpy.int32)
        self.combine = dict(
            rows=like(numpy.ones((rows, HIDDEN), numpy.float32)),
            out=empty((TOKENS, HIDDEN), numpy.float32),
            bias0=like(numpy.full((TOKENS, HIDDEN), 0.5, numpy.float32)),
            bias1=like(numpy.full((TOKENS, HIDDEN), 0.25, numpy.float32)),
        )
        grads = numpy.zeros((rows,) if by_expert else (rows, TOPK), numpy.float32)
        self.combine["grads.weight_grads"] = like(grads)
        self.combine["grads.out_weight_grads"] = empty((TOKENS, TOPK), numpy.float32)

    def wrong(self, name, array):
        """Wrong arrays for an argument: (how, array)."""
        like, empty = self.guards.like, self.guards.empty
        kind = numpy.float64 if array.dtype != numpy.float64 else numpy.float32
        yield "another dtype", empty(array.shape, kind)
        yield "a smaller dtype", empty(array.shape, numpy.int8)
        if name != "out_rows":  # the library reports out_rows to all ranks
            yield "a row less", like(array[:-1])
        if name in ("rows", "bias0", *STRIDED):
            yield "no rows", like(array[:0])
        if array.ndim == 2:
            yield "narrower", empty((array.shape[0], array.shape[1] - 1), array.dtype)
            yield "one column", empty((array.shape[0], 1), array.dtype)
            yield "one axis less", empty((array.shape[0],), array.dtype)
            yield "transposed", empty(array.shape[::-1], array.dtype).T
            if name not in STRIDED:
                yield "of a wider array", empty((array.shape[0], 2 * array.shape[1]), array.dtype)[:, : array.shape[1]]
        else:
            yield "every second", empty((2 * array.shape[0],), array.dtype)[::2]
            yield "an axis more", empty(array.shape + (1,), array.dtype)
        yield "no axis", numpy.zeros((), array.dtype)
        if name.rpartition(".")[2].startswith("out"):
            read_only = like(array)
            read_only.flags.writeable = False
            yield "read-only", read_only


class RefusalTest(unittest.TestCase):
    def run_step(self, handle, step, convert, call, name, array):
        arguments = {key: convert(value) for key, value in getattr(step, call).items()}
        arguments[name] = array
        getattr(handle, call)(**keywords_of(arguments))

    def refuse_all(self, handle, step, convert, call):
        """All ranks alike. A refused combine ends the step, so each combine has a dispatch of its own. The rows that it
        reads do not count in a step that delivers nothing."""
        count, before = 0, ("route", "dispatch") if call == "combine" else ()
        for name, right in getattr(step, call).items():
            for how, array in step.wrong(name, right):
                if how != "read-only" or convert is not as_torch:  # torch has no read-only arrays
                    array = convert(array)
                self.run_right(handle, step, convert, before)
                with self.assertRaises((ValueError, TypeError), msg=f"{call}: {name}: {how}") as caught:
                    self.run_step(handle, step, convert, call, name, array)
                # If two arguments contradict each other, the error names both. The number of tokens comes from
                # topk_idx.
                named = "topk_weights" if (name, how) == ("topk_idx", "a row less") else name
                named = re.escape(named.replace("payloads.", "payloads[0]."))
                self.assertRegex(str(caught.exception), rf"\b{named}\b", f"{call}: {name}: {how}")
                count += 1
        return count

    def run_right(self, handle, step, convert, calls):
        for call in calls:
            getattr(handle, call)(**keywords_of({name: convert(value) for name, value in getattr(step, call).items()}))

    def check_results(self, handle, step):
        dispatch, combine = step.dispatch, step.combine
        # Each token went to one expert of each rank, so it has one row per rank in every layout.
        numpy.testing.assert_array_equal(combine["out"], numpy.full((TOKENS, HIDDEN), 2.75))
        sources = {"rows": numpy.concatenate([tokens_of(rank)[2] for rank in range(RANKS)])}
        counts = handle.counts()
        self.assertEqual(counts.rows, RANKS * TOKENS)
        arrived = dispatch["describe.out_source_index"]
        full = [row for row in range(len(arrived)) if 0 <= arrived[row] < RANKS * TOKENS_MAX]
        for row in full:
            rank, token = divmod(int(arrived[row]), TOKENS_MAX)
            numpy.testing.assert_array_equal(dispatch["out_rows"][row], sources["rows"][rank * TOKENS + token])
        self.assertEqual(len(full), RANKS * TOKENS)

    def body(self, layout, mode, convert):
        counts = []

        def run(comm):
            with comm.handle(EXPERTS, TOPK, layout=layout, mode=mode, tokens_max=TOKENS_MAX) as handle:
                step = Step(comm.rank, layout, RANKS * TOKENS)
                count = self.refuse_all(handle, step, convert, "route")
                self.run_right(handle, step, convert, ["route"])
                rows = handle.counts().layout_rows
                guards, step = step.guards, Step(comm.rank, layout, rows)
                count += self.refuse_all(handle, step, convert, "dispatch")
                count += self.refuse_all(handle, step, convert, "combine")
                self.run_right(handle, step, convert, ["route", "dispatch", "combine"])
                self.check_results(handle, step)
                self.assertEqual((guards.broken(), step.guards.broken()), (0, 0))
                counts.append(count)

        world(run, **SETTINGS)
        self.assertGreater(min(counts), 80)

    def all_layouts(self, convert):
        for layout in LAYOUTS:
            for mode in ("ht", "ll"):
                with self.subTest(layout=layout, mode=mode):
                    self.body(layout, mode, convert)


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(numpy is None, "numpy is not installed")
class WrongArraysTest(RefusalTest):
    def test_numpy_arrays(self):
        self.all_layouts(as_numpy)

    def test_dlpack_objects(self):
        if not capsules_have_versions():
            self.skipTest(f"numpy {numpy.__version__} makes DLPack capsules without a version")
        self.all_layouts(as_dlpack)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_torch_tensors(self):
        self.all_layouts(as_torch)


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(numpy is None, "numpy is not installed")
class SentenceTest(unittest.TestCase):
    """The error message that a user reads."""

    def refuse(self, call, sentence, error=ValueError, layout="flat", mode="ht", parts=None, **wrong):
        def body(comm):
            with comm.handle(EXPERTS, TOPK, layout=layout, mode=mode, tokens_max=TOKENS_MAX) as handle:
                step = Step(comm.rank, layout, RANKS * TOKENS)
                if call != "route":
                    handle.route(**step.route)
                step = Step(comm.rank, layout, handle.counts().layout_rows if call != "route" else 1)
                with self.assertRaises(error) as caught:
                    getattr(handle, call)(**keywords_of({**getattr(step, call), **wrong, **(parts or {})}))
                self.assertEqual(str(caught.exception), sentence)
                self.assertEqual(step.guards.broken(), 0)

        world(body, **SETTINGS)

    def test_an_output_of_another_type(self):
        wrong = numpy.zeros((6, HIDDEN), numpy.float64)
        self.refuse("dispatch", "out_rows holds float64, expected float32, as rows does", TypeError, out_rows=wrong)

    def test_an_output_that_is_narrower(self):
        self.refuse(
            "dispatch",
            "out_rows has shape (6, 4) of float32, expected rows of 8 float32, as rows has",
            out_rows=numpy.zeros((6, 4), numpy.float32),
        )

    def test_fewer_rows_than_tokens(self):
        wrong = numpy.zeros((2, HIDDEN), numpy.float32)
        self.refuse("dispatch", "rows has shape (2, 8), expected [tokens, hidden] = (3, 8)", rows=wrong)
        self.refuse("combine", "out has shape (2, 8), expected [tokens, hidden] = (3, 8)", out=wrong)

    def test_no_rows_although_there_are_tokens(self):
        sentence = "is None, expected [tokens, hidden] with 3 rows of 8 float32, as"
        self.refuse("dispatch", f"rows {sentence} out_rows has", rows=None)
        self.refuse("combine", f"out {sentence} rows has", out=None)

    def test_weights_of_one_column(self):
        self.refuse(
            "route",
            "topk_weights has shape (3, 1), expected [tokens, topk] = (3, 2)",
            topk_weights=numpy.ones((TOKENS, 1), numpy.float32),
        )

    def test_a_read_only_output(self):
        wrong = numpy.zeros((TOKENS, HIDDEN), numpy.float32)
        wrong.flags.writeable = False
        self.refuse("combine", "out is read-only, expected a writable array", out=wrong)

    def test_metadata_for_fewer_rows_than_arrive(self):
        self.refuse(
            "dispatch",
            "describe.out_source_index has shape (5,), expected [out rows] of at least 6 rows",
            parts={"describe.out_source_index": numpy.zeros(5, numpy.int32)},
        )

    def test_fewer_rows_to_combine_than_came(self):
        wrong = numpy.zeros((5, HIDDEN), numpy.float32)
        self.refuse("combine", "rows has shape (5, 8), expected [out rows, hidden] of at least 6 rows", rows=wrong)
        sentence = "rows has shape (0, 8), expected [out rows, hidden] of at least 6 rows"
        self.refuse("combine", sentence, rows=wrong[:0])

    def test_outputs_that_a_layout_does_not_have(self):
        self.refuse(
            "dispatch",
            "describe.out_topk_idx is given, but the layout expert-major has none: expected None",
            layout="expert-major",
            parts={"describe.out_topk_idx": numpy.zeros((8, TOPK), numpy.int32)},
        )

    def test_rows_that_cannot_be_summed(self):
        wrong = numpy.zeros((6, HIDDEN), numpy.int32)
        sentence = "rows holds int32, expected bfloat16, float16 or float32"
        self.refuse("combine", sentence, TypeError, rows=wrong)

    def test_more_rows_told_than_there_are(self):
        sentence = "out_rows_max is 7, but out_rows has 6 rows: shape (6, 8)"
        self.refuse("dispatch", sentence, out_rows_max=7)

    def test_gradients_one_without_the_other(self):
        sentence = "grads.out_weight_grads is None, expected [tokens, topk] with 3 tokens"
        self.refuse("combine", sentence, parts={"grads.out_weight_grads": None})
        sentence = "grads.weight_grads is None, but 6 rows came: expected gradients for them"
        self.refuse("combine", sentence, parts={"grads.weight_grads": None})

    def test_a_payload_that_contradicts_itself(self):
        sentence = "payloads[0].bytes is 32, but payloads[0].rows has rows of 16 bytes: (3, 16) of uint8"
        self.refuse("dispatch", sentence, parts={"payloads.bytes": 32})
        sentence = "payloads[0].rows is None, expected [tokens, elements] with 3 tokens"
        self.refuse("dispatch", sentence, parts={"payloads.rows": None})
        sentence = "payloads[0].out is None, expected an array, since out_rows is given"
        self.refuse("dispatch", sentence, parts={"payloads.out": None})

    def test_what_is_no_part(self):
        for call, name, given, sentence in (
            ("dispatch", "cast", "fp8", "cast is 'fp8', expected a Cast"),
            ("combine", "ready", numpy.zeros(2, numpy.int32), "ready is a ndarray, expected a Ready"),
        ):
            self.refuse(call, sentence, TypeError, parts={name: given})

    def test_an_empty_output_where_none_leaves_the_rows_in_the_view(self):
        self.refuse(
            "dispatch",
            "out_rows has shape (0, 8), expected 8 rows, or None to leave them in view()",
            layout="rank-major",
            mode="ll",
            out_rows=numpy.zeros((0, HIDDEN), numpy.float32),
        )


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(numpy is None, "numpy is not installed")
class StatusTest(unittest.TestCase):
    def test_an_expert_that_cannot_be_is_told_to_all_ranks_and_ends_nothing(self):
        def body(comm):
            with comm.handle(EXPERTS, TOPK, mode="ht", tokens_max=TOKENS_MAX) as handle:
                step = Step(comm.rank, "flat", RANKS * TOKENS)
                bad = numpy.array(step.route["topk_idx"])
                if comm.rank == 1:
                    bad[1, 0] = EXPERTS
                self.assertIsNone(handle.status())
                with self.assertRaisesRegex(moecomm.InvalidArgument, f"token 1..0. of rank 1 is {EXPERTS}"):
                    handle.route(bad)
                why = handle.status()
                self.assertRegex(repr(why), f"InvalidArgument.*token 1..0. of rank 1 is {EXPERTS}")
                self.assertEqual(handle.counts().rows, 0)
                handle.route(**step.route)
                self.assertIsNone(handle.status())
                self.assertIsNone(comm.async_error())

        world(body, **SETTINGS)


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(numpy is None, "numpy is not installed")
class CapacityTest(unittest.TestCase):
    def test_an_output_with_too_few_rows_is_told_to_all_ranks(self):
        """The library compares the numbers. Nothing is written, and the sentence has both."""

        def body(comm):
            with comm.handle(EXPERTS, TOPK, mode="ht", tokens_max=TOKENS_MAX) as handle:
                step = Step(comm.rank, "flat", RANKS * TOKENS)
                handle.route(**step.route)
                out_rows = step.guards.empty((RANKS * TOKENS - comm.rank, HIDDEN), numpy.float32)
                with self.assertRaisesRegex(moecomm.InvalidArgument, "rank 1.* 5 .* 6 "):
                    handle.dispatch(step.dispatch["rows"], out_rows)
                self.assertRegex(str(handle.status()), "rank 1.* 5 .* 6 ")
                self.assertTrue((out_rows.view(numpy.uint8) == 0xA5).all())
                self.assertEqual(step.guards.broken(), 0)

        world(body, **SETTINGS)

    def test_none_where_rows_came_is_told_to_all_ranks(self):
        def body(comm):
            with comm.handle(EXPERTS, TOPK, mode="ht", tokens_max=TOKENS_MAX) as handle:
                step = Step(comm.rank, "flat", RANKS * TOKENS)
                handle.route(**step.route)
                rows = step.combine["rows"] if comm.rank == 0 else None
                with self.assertRaisesRegex(moecomm.InvalidArgument, "args.rows of rank 1"):
                    handle.combine(rows, step.combine["out"])
                self.assertRegex(str(handle.status()), "args.rows of rank 1")

        world(body, **SETTINGS)

    def test_arrays_may_have_more_rows_and_groups_may_be_an_axis(self):
        def body(comm):
            for layout, mode, groups in (
                ("flat", "ht", (9,)),
                ("expert-major", "ll", (9,)),
                ("rank-major", "ll", (RANKS, TOKENS_MAX)),
                ("expert-major-padded", "ht", (LOCAL, RANKS * TOKENS_MAX)),
            ):
                with comm.handle(EXPERTS, TOPK, layout=layout, mode=mode, tokens_max=TOKENS_MAX) as handle:
                    step = Step(comm.rank, layout, RANKS * TOKENS)
                    handle.route(**step.route)
                    out_rows = step.guards.empty((*groups, HIDDEN), numpy.float32)
                    index = step.guards.empty(groups, numpy.int32)
                    handle.dispatch(step.dispatch["rows"], out_rows, describe=moecomm.Describe(out_source_index=index))
                    out_rows[...] = 1
                    handle.combine(out_rows, step.combine["out"])
                    numpy.testing.assert_array_equal(step.combine["out"], numpy.full((TOKENS, HIDDEN), 2))
                    self.assertEqual(step.guards.broken(), 0)

        world(body, **SETTINGS)

    def test_window_memory_is_an_array(self):
        def body(comm):
            with comm.handle(EXPERTS, TOPK, mode="ht", tokens_max=TOKENS_MAX) as handle:
                step = Step(comm.rank, "flat", RANKS * TOKENS)
                handle.route(**step.route)
                memory = comm.window((RANKS * TOKENS, HIDDEN), "<f4")
                handle.dispatch(step.dispatch["rows"], memory)
                expected = numpy.concatenate([tokens_of(rank)[2] for rank in range(RANKS)])
                numpy.testing.assert_array_equal(numpy.asarray(memory), expected)
                handle.combine(memory, step.combine["out"])
                numpy.testing.assert_array_equal(step.combine["out"], 2 * step.tokens)
                self.assertEqual(step.guards.broken(), 0)
                memory.free()
                with self.assertRaisesRegex(moecomm.InvalidUsage, "^the window memory has been freed$"):
                    handle.combine(memory, step.combine["out"])

        world(body, **SETTINGS)

    def test_axes_in_another_order_are_refused(self):
        def body(comm):
            with comm.handle(EXPERTS, TOPK, layout="rank-major", tokens_max=TOKENS_MAX) as handle:
                step = Step(comm.rank, "rank-major", RANKS * TOKENS_MAX)
                handle.route(**step.route)
                out_rows = numpy.zeros((TOKENS_MAX, RANKS, HIDDEN), numpy.float32)
                with self.assertRaisesRegex(ValueError, r"^out_rows has shape \(4, 2, 8\).* 2 x 4 rows"):
                    handle.dispatch(step.dispatch["rows"], out_rows)

        world(body, **SETTINGS)


if __name__ == "__main__":
    unittest.main()
