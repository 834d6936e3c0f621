"""moecomm.dispatch_layout. Needs the library and numpy."""

import unittest

from support import MISSING, Guards, numpy

import moecomm

EXPERTS, RANKS = 10, 4  # ranks 0 and 1 have three experts, the others two
RANK_OF = (0, 0, 0, 1, 1, 1, 2, 2, 3, 3)
IDS = [[0, 2], [9, -1], [3, 0], [-1, -1], [10, 5], [1 << 32, 6]]  # 10 and 1 << 32 are no experts
GOES = [{RANK_OF[i] for i in row if 0 <= i < EXPERTS} for row in IDS]


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class DispatchLayoutTest(unittest.TestCase):
    def count(self, ids, **arrays):
        moecomm.dispatch_layout(ids, experts=EXPERTS, nranks=RANKS, domain_size=2, **arrays)

    def test_counts(self):
        guards, ids = Guards(), numpy.array(IDS, numpy.int64)
        ranks, domains = guards.empty((RANKS,), numpy.int32), guards.empty((2,), numpy.int32)
        experts, to = guards.empty((EXPERTS,), numpy.int32), guards.empty((len(IDS), RANKS), numpy.bool_)
        self.count(
            ids, tokens_per_rank=ranks, tokens_per_domain=domains, tokens_per_expert=experts, token_to_rank=to
        )
        self.assertEqual(to.tolist(), [[rank in goes for rank in range(RANKS)] for goes in GOES])
        self.assertEqual(ranks.tolist(), to.sum(0).tolist())
        self.assertEqual(domains.tolist(), [3, 2])
        self.assertEqual(experts.tolist(), [int((ids == expert).sum()) for expert in range(EXPERTS)])

    def test_narrow_ids_and_one_domain(self):
        ranks, domains = numpy.empty(RANKS, numpy.int32), numpy.empty(1, numpy.int32)
        ids = numpy.array(IDS[:4], numpy.int32)
        moecomm.dispatch_layout(
            ids, experts=EXPERTS, nranks=RANKS, tokens_per_rank=ranks, tokens_per_domain=domains
        )
        self.assertEqual((ranks.tolist(), domains.tolist()), ([2, 1, 0, 1], [3]))
        self.count(ids[:0], tokens_per_rank=ranks)
        self.assertEqual(ranks.tolist(), [0] * RANKS)

    def test_refusals(self):
        ids = numpy.array(IDS, numpy.int64)
        for error, sentence, arguments in (
            (TypeError, "topk_idx holds float32", {"ids": ids.astype(numpy.float32)}),
            (ValueError, r"topk_idx has shape \(6,\), expected \[tokens, topk\]", {"ids": ids[:, 0].copy()}),
            (ValueError, r"tokens_per_rank has shape \(3,\)", {"tokens_per_rank": numpy.empty(3, numpy.int32)}),
            (TypeError, "tokens_per_expert holds int64", {"tokens_per_expert": numpy.empty(EXPERTS, numpy.int64)}),
            (ValueError, "token_to_rank has shape", {"token_to_rank": numpy.empty((2, RANKS), numpy.bool_)}),
        ):
            with self.subTest(sentence), self.assertRaisesRegex(error, sentence):
                self.count(**{"ids": ids, **arguments})
        with self.assertRaisesRegex(ValueError, "domain_size is 3, expected 0 or a divisor of nranks, which is 4"):
            moecomm.dispatch_layout(ids, experts=EXPERTS, nranks=RANKS, domain_size=3)
        with self.assertRaisesRegex(moecomm.InvalidArgument, "layout.experts is 2, must be 4.."):
            moecomm.dispatch_layout(ids, experts=2, nranks=RANKS)


if __name__ == "__main__":
    unittest.main()
