"""Placements of experts. Needs the library and numpy."""

import unittest

from support import MISSING, RANKS, numpy, world

import moecomm

EXPERTS = 2 * RANKS  # two places on each rank


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class PlacementTest(unittest.TestCase):
    def test_a_route_takes_copies(self):
        def body(comm):
            ids = numpy.zeros((4, 1), numpy.int32)  # all tokens want logical expert 0
            with comm.handle(experts=EXPERTS, topk=1) as handle:
                handle.set_placement(numpy.array([0, 1] + [0, 2] * (RANKS - 1)))  # a copy on each rank
                handle.route(ids)
                self.assertEqual(list(handle.counts().rows_per_expert), [4, 0])
                handle.set_placement([0, 0, 1], [1, 1, 0], [1, 0, 0])  # both on rank 1, and a place is empty
                handle.route(ids)
                self.assertEqual(list(handle.counts().rows_per_expert), [2 * RANKS] * 2 if comm.rank == 1 else [0, 0])
                handle.set_placement(None)
                handle.route(ids)
                self.assertEqual(list(handle.counts().rows_per_expert), [4 * RANKS, 0] if comm.rank == 0 else [0, 0])

        world(body)

    def test_what_cannot_be_is_refused(self):
        def body(comm):
            with comm.handle(experts=EXPERTS, topk=1) as handle:
                for error, sentence, arguments in (
                    (ValueError, "ranks is given, but logical is None", (None, [0])),
                    (ValueError, "local_experts has 1 elements, but logical 2", ([0, 1], [0, 0], [0])),
                    (ValueError, r"logical\[1\] is -1, expected 0", ([0, -1],)),
                    (TypeError, r"logical\[0\] is 0.5, expected an integer", ([0.5],)),
                    (moecomm.errors.InvalidArgument, "physicalExperts is 0, must be 1..", ([],)),
                    (moecomm.errors.InvalidArgument, "physicalExperts is 2, but the handle has", ([0, 1],)),
                    (moecomm.errors.InvalidArgument, "does not name expert 0 of 0..1", ([1] * EXPERTS,)),
                ):
                    with self.assertRaisesRegex(error, sentence):
                        handle.set_placement(*arguments)

        world(body)


if __name__ == "__main__":
    unittest.main()
