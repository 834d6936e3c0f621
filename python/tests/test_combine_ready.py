"""Combines that begin before the rows of the experts are made. Needs the library and numpy."""

import threading
import time
import unittest

from support import MISSING, RANKS, numpy, world

import moecomm
from moecomm import Ready

EXPERTS, TOKENS = 4, 3


def made_later(given, rows, words, step):
    """A thread that makes rows, the last expert first. A word is stored at once, and behind its rows on x86 and ARM,
    because the interpreter lock lies between them."""
    each = len(rows) // len(words)

    def run():
        for expert in reversed(range(len(words))):
            time.sleep(0.002)
            rows[expert * each : (expert + 1) * each] = given[expert * each : (expert + 1) * each]
            words[expert] += step

    return threading.Thread(target=run)


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class CombineReadyTest(unittest.TestCase):
    def test_rows_are_read_when_their_words_have_come(self):
        def body(comm):
            ids = numpy.tile(numpy.array([0, 3], numpy.int32), (TOKENS, 1))  # one expert of each rank
            local = EXPERTS // RANKS
            for mode in ("ht", "ll"):
                with comm.handle(
                    experts=EXPERTS, topk=2, layout="expert-major-padded", mode=mode, tokens_max=TOKENS
                ) as handle:
                    rows = numpy.arange(TOKENS * 8, dtype=numpy.float32).reshape(TOKENS, 8)
                    out = numpy.empty((local * RANKS * TOKENS, 8), numpy.float32)
                    handle.route_dispatch(ids, None, rows, out)
                    sums, later = numpy.zeros((TOKENS, 8), numpy.float32), numpy.full_like(out, -7.0)
                    words = numpy.zeros(local, numpy.uint32)
                    for value in (1, 2):
                        later[:] = -7.0
                        experts = made_later(2 * out, later, words, 1)
                        experts.start()
                        handle.combine(later, sums, ready=Ready(words, value=value))
                        experts.join()
                        self.assertEqual(sums.tolist(), (4 * rows).tolist())
                    with self.assertRaisesRegex(ValueError, r"ready.words has shape .* expected \[local experts\]"):
                        handle.combine(out, sums, ready=Ready(words[:1]))
                    with self.assertRaisesRegex(TypeError, "ready.words holds int64"):
                        handle.combine(out, sums, ready=Ready(words.astype(numpy.int64)))
                    with self.assertRaisesRegex(moecomm.errors.InvalidArgument, "args.ready.blockRows is 3"):
                        handle.combine(out, sums, ready=Ready(words, 3))
            with comm.handle(experts=EXPERTS, topk=2, layout="flat") as flat:
                arrived = numpy.empty((RANKS * TOKENS, 8), numpy.float32)
                flat.route_dispatch(ids, None, rows, arrived)
                with self.assertRaisesRegex(moecomm.errors.InvalidArgument, "only layouts with a row per expert"):
                    flat.combine(arrived, sums, ready=Ready(words))

        world(body)


if __name__ == "__main__":
    unittest.main()
