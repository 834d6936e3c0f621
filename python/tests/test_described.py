"""Arrays about a route: the origins of arriving rows. Needs the library and numpy."""

import unittest

from support import MISSING, RANKS, Guards, numpy, world

from moecomm import Describe

TOPK, EXPERTS, TOKENS, LOCAL = 2, 4, 3, 2
IDS = [[[0, 2], [1, -1], [3, 0]], [[3, 1], [2, 3], [-1, -1]]]  # of both ranks


def arrivals(rank):
    """{local expert: [(source, token, k)]}, in the order of their rows."""
    groups = {local: [] for local in range(LOCAL)}
    for source in range(RANKS):
        for token in range(TOKENS):
            for k in range(TOPK):
                expert = IDS[source][token][k]
                if expert >= 0 and expert // LOCAL == rank:
                    groups[expert % LOCAL].append((source, token, k))
    return groups


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class DescribedTest(unittest.TestCase):
    def test_rows_that_come(self):
        def body(comm):
            guards, rows = Guards(), numpy.ones((TOKENS, 8), numpy.float32)
            with comm.handle(experts=EXPERTS, topk=TOPK, layout="expert-major", expert_alignment=4) as handle:
                out = guards.empty((16, 8), numpy.float32)
                ranges = guards.empty((LOCAL, RANKS), numpy.int64)
                sources, names = guards.empty((16,), numpy.int32), guards.empty((16,), numpy.int32)
                described = Describe(
                    out_source_index=sources, out_row_experts=names, out_layout_range=ranges, ids="global", invalid_id=-5
                )
                ids = numpy.array(IDS[comm.rank], numpy.int32)
                handle.route_dispatch(ids, None, rows, out, pad_indices=True, describe=described)
                expected_sources, expected_names = [], []
                for local, group in arrivals(comm.rank).items():
                    gap = -len(group) % 4
                    expected_sources += [source * handle.tokens_max + token for source, token, _ in group] + [-1] * gap
                    expected_names += [comm.rank * LOCAL + local] * len(group) + [-5] * gap
                    begins = [sum(row[0] < source for row in group) for source in range(RANKS)]
                    counts = [sum(row[0] == source for row in group) for source in range(RANKS)]
                    self.assertEqual(ranges[local].tolist(), [b << 32 | c for b, c in zip(begins, counts)])
                spare = 16 - len(expected_names)
                self.assertEqual(sources.tolist(), expected_sources + [-1] * spare)
                self.assertEqual(names.tolist(), expected_names + [-5] * spare)
                with self.assertRaisesRegex(ValueError, r"describe.out_source_index has shape \(16, 2\)"):
                    handle.dispatch(rows, out, describe=Describe(out_source_index=numpy.empty((16, 2), numpy.int32)))
            with comm.handle(experts=EXPERTS, topk=TOPK) as flat:
                flat.route(numpy.array(IDS[comm.rank], numpy.int32))
                with self.assertRaisesRegex(ValueError, "the layout flat has no row per expert"):
                    flat.dispatch(rows, out, describe=Describe(out_row_experts=names))

        world(body)


if __name__ == "__main__":
    unittest.main()
