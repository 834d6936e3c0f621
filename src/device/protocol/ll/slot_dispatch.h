// A dispatch that routes, of RANK_MAJOR rows that stay in their slots, with nothing beside them. Most decoders run it
// in each layer. README.md, "Dispatch into slots".
#pragma once

#include "device/protocol/ll/block_dispatch.h"

namespace moe {

template <Blocks Warp>
class LlSlotDispatch : LlBlockDispatch<Warp, false> {
 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    Base::template runAs<LlSlotDispatch>(warp, p, w);
  }

 private:
  using Base = LlBlockDispatch<Warp, false>;
  friend Base;
  using Base::Base, Base::s_, Base::t_;
  using typename Base::Kept, typename Base::Taken;

  MOE_LANES void receive() const {
    const Taken taken(t_);
    const bool last = isLast(s_.w), describing = describes(s_.args);
    const Kept kept = this->lookAtKept();
    if (!taken.await(s_.rowFlags(), s_.epoch)) return;
    const Slice mine = keptHere(taken.rows());
    for (int done = 0; done == 0 || done < mine.count; done += kLlRowsAtOnce) {
      const int left = mine.count - done;
      const Slice rows{mine.begin + done, left < kLlRowsAtOnce ? left : kLlRowsAtOnce};
      look(taken, rows, done == 0, last, describing);
      if (describing && taken.verdict() == kLlGood && rows.count > 0) describe(taken, rows);
    }
    this->keepRoute(taken, kept);
  }

  // The arriving rows whose headers this block keeps.
  MOE_LANES Slice keptHere(int rows) const {
    const int keepers = s_.w.count > 1 ? s_.w.count - 1 : 1;
    return s_.w.index < keepers ? sliceOf(rows, {s_.w.index, keepers, keepers}) : Slice{0, 0};
  }
  // Looks up at once the headers of some rows, which the handle keeps, and with the first rows the metadata of all
  // ranks: terms, for a block that computes the verdict, and counts, for the last block.
  MOE_LANES void look(const Taken& taken, Slice rows, bool first, bool last, bool describing) const {
    const HandleView& h = s_.handle;
    const int stride = h.headerStride(), quads = rows.count * stride;
    const int terms = first && (last || describing) ? s_.comm.nranks : 0,
              experts = last && first ? h.map.count(s_.comm.rank) : 0;
    const int termsAt = wholeWarps<Warp>(quads), expertsAt = termsAt + wholeWarps<Warp>(terms);
    Quad* kept = h.arriving.headers + std::int64_t{rows.begin} * stride;
    s_.warp.forEach(expertsAt + experts, [&](int i) {
      if (i >= expertsAt) return taken.laneAddUpExpert(i - expertsAt);
      if (i >= termsAt) {
        if (i - termsAt < terms) taken.laneJudge(i - termsAt, taken.laneTerms(i - termsAt));
        return;
      }
      if (i >= quads) return;
      const int at = h.byHeader.of(i);
      const Quad quad = taken.laneHeaderQuad(rows.begin + at, i - at * stride);
      kept[i] = quad;
      if (describing) t_.headers()[i] = quad;
    });
  }
  // Fills the caller's arrays about rows that have been looked up.
  MOE_LANES void describe(const Taken& taken, Slice rows) const {
    const HandleView& h = s_.handle;
    const auto each = [&](auto tell) {
      s_.warp.each(rows.count * h.topk, [&](int i) {
        const int at = h.byTopk.of(i);
        const Arrival from = taken.arrival(rows.begin + at);
        tell(t_.headers() + at * h.headerStride(), from.from * h.tokensMax + from.index, i - at * h.topk);
      });
      s_.warp.forEach(0, [](int) {});
    };
    each([&](const Quad*, int place, int k) { laneDescribeNothing(h, s_.args, place, k); });
    each([&](const Quad* header, int place, int n) {
      if (n < headEntries(header[0])) laneDescribe(h, s_.args, header[0], header[1 + n], n, place);
    });
  }
};

}  // namespace moe
