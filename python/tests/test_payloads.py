"""Payloads beside rows: strided arrays, columns, blocks of 128 rows. Needs the library and numpy."""

import unittest

from support import MISSING, RANKS, numpy, world

import moecomm
from moecomm import Payload

TOKENS, HIDDEN = 5, 8


def numbers(rank, what, count):
    """[TOKENS, count] numbers that name their rank, payload, token and place."""
    places = numpy.arange(TOKENS * count, dtype=numpy.int32).reshape(TOKENS, count)
    return places + 10000 * rank + 1000 * what


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class PayloadTest(unittest.TestCase):
    def handle_of(self, comm, mode):
        return comm.handle(experts=RANKS, topk=1, mode=mode, tokens_max=TOKENS)

    def test_words_go_from_and_to_columns_and_rows(self):
        def body(comm, mode):
            rows = RANKS * TOKENS
            with self.handle_of(comm, mode) as handle:
                handle.route(numpy.zeros((TOKENS, 1), numpy.int32))  # all tokens go to rank 0
                capacity = handle.counts().layout_rows
                out = numpy.zeros((capacity, HIDDEN), numpy.float32)
                columns = numpy.asfortranarray(numbers(comm.rank, 0, 6))
                padded = numpy.full((3, capacity + 3), -1, numpy.int32)  # columns of a length of their own
                halves = numbers(comm.rank, 1, 4).astype(numpy.int16)
                kept = numpy.zeros((capacity, 4), numpy.int16)
                blocks = numpy.zeros((-(-capacity // 128), 2, 128), numpy.int32)
                handle.dispatch(
                    numpy.zeros((TOKENS, HIDDEN), numpy.float32),
                    out,
                    payloads=[
                        Payload(columns[:, ::2], padded.T[:capacity]),
                        Payload(halves, kept),
                        Payload(numbers(comm.rank, 2, 2), blocks, "128x4"),
                    ],
                )
                self.assertEqual(capacity, rows if comm.rank == 0 else 0)
                for row in range(capacity):
                    source, token = divmod(row, TOKENS)
                    self.assertEqual(list(padded[:, row]), list(numbers(source, 0, 6)[token, ::2]))
                    self.assertEqual(list(kept[row]), list(numbers(source, 1, 4)[token].astype(numpy.int16)))
                    self.assertEqual(list(blocks[0, :, row % 32 * 4]), list(numbers(source, 2, 2)[token]))
                self.assertTrue((padded[:, capacity:] == -1).all())

        for mode in ("ht", "ll"):
            world(lambda comm: body(comm, mode), side_bytes_max=32)

    def test_an_array_of_rows_is_prepared(self):
        """One of whole 16 bytes, with other memory in each call; beside it one with strides, which is checked each time."""

        def body(comm, mode):
            with self.handle_of(comm, mode) as handle:
                handle.route(numpy.full((TOKENS, 1), 1 - comm.rank, numpy.int32))
                capacity = handle.counts().layout_rows
                rows, out = numpy.zeros((TOKENS, HIDDEN), numpy.float32), numpy.zeros((capacity, HIDDEN), numpy.float32)
                for what in range(3):
                    kept, wide = numpy.zeros((capacity, 4), numpy.int32), numpy.zeros((capacity, 8), numpy.int32)
                    handle.dispatch(rows, out, payloads=(Payload(numbers(comm.rank, what, 4), kept, "array"),))
                    handle.dispatch(rows, out, payloads=(Payload(numbers(comm.rank, what, 4), wide[:, ::2]),))
                    self.assertEqual(kept.tolist(), numbers(1 - comm.rank, what, 4).tolist())
                    self.assertEqual(wide[:, ::2].tolist(), kept.tolist())
                self.assertEqual(len(handle._prepared._by_form), 1)

        for mode in ("ht", "ll"):
            world(lambda comm: body(comm, mode), side_bytes_max=32)

    def test_what_cannot_be_is_refused(self):
        good = numpy.zeros((TOKENS, 2), numpy.int32)
        out = numpy.zeros((RANKS * TOKENS, 2), numpy.int32)
        cases = (
            (TypeError, r"payloads\[0\] is a tuple, expected a Payload", [(good, out)]),
            (ValueError, "payloads has 5 of them, expected at most 4", [Payload(good, out)] * 5),
            (ValueError, r"payloads\[0\].rows has shape \(4, 2\), expected \[tokens", [Payload(good[:4], out)]),
            (ValueError, r"payloads\[1\].rows is None", [Payload(good, out), Payload(None, out)]),
            (ValueError, r"payloads\[0\].out is None", [Payload(good, None)]),
            (ValueError, "expected rows of a multiple of 4 bytes", [Payload(good[:, :1].astype(numpy.int8), out)]),
            (ValueError, "expected rows of 8 bytes of int32", [Payload(good, out.astype(numpy.float32))]),
            (ValueError, r"has strides \(0, 4\)", [Payload(numpy.broadcast_to(good[:1], good.shape), out)]),
            (ValueError, "has strides", [Payload(numpy.zeros((TOKENS, 4), numpy.int8)[:, ::-1], out)]),
            (ValueError, "of at least", [Payload(good, out[:3])]),
            (ValueError, "layout is 'rows', expected", [Payload(good, out, "rows")]),
            (moecomm.InvalidArgument, "args.payloads have 40 bytes for a row", [Payload(good.repeat(5, 1), out.repeat(5, 1))]),
        )  # fmt: skip

        def body(comm):
            with self.handle_of(comm, "ht") as handle:
                ids = numpy.zeros((TOKENS, 1), numpy.int32)
                rows = numpy.zeros((TOKENS, HIDDEN), numpy.float32)
                space = numpy.zeros((RANKS * TOKENS, HIDDEN), numpy.float32)
                for error, sentence, payloads in cases:
                    handle.route(ids)
                    if comm.rank == 0:  # the only rank on which rows arrive
                        with self.assertRaisesRegex(error, sentence):
                            handle.dispatch(rows, space, payloads=payloads)
                    else:
                        with self.assertRaisesRegex(moecomm.MoeError, "rank 0 has refused its arguments"):
                            handle.dispatch(rows, space, payloads=[Payload(good, out)])

        world(body, side_bytes_max=32)


if __name__ == "__main__":
    unittest.main()
