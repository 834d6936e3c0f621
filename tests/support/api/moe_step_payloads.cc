// The payloads of a dispatch of moe_step.h: their arrays, the arguments of the call, and their check.
#include <algorithm>
#include <cstring>

#include "support/api/moe_step.h"

namespace moe::test {
namespace {

std::int64_t bytesOf(const WordsForm& form, std::int64_t rows) {
  return std::max(rows * (form.words + form.pad), form.words * (rows + form.pad)) * 4;
}

}  // namespace

std::uint32_t MoeStep::payloadWord(int source, int token, int word) const {
  return static_cast<std::uint32_t>(
      mix(case_.seed ^ 0x9a71, mix(static_cast<std::uint64_t>(iteration_) << 32 |
                                   static_cast<std::uint64_t>(source) << 16 | static_cast<std::uint64_t>(token)) +
                                   static_cast<std::uint64_t>(word)));
}

// Blocks need the most memory: enough for every block that an output of the layout could have.
WordsOutput MoeStep::payloadOutput(const WordsForm& form, const RouteConfig& route,
                                   const std::vector<int>& offsets) const {
  return {form, route, offsets, rowsMax_, rowsMax_};
}

void MoeStep::takePayloads() {
  const RouteConfig route{context_.nranks, case_.experts,  case_.topk, static_cast<Layout>(case_.layout),
                          case_.tokensMax, case_.alignment};
  const int local = (case_.experts + context_.nranks - 1) / context_.nranks;
  const std::vector<int> offsets(static_cast<std::size_t>(local) + 1, 0);
  for (const WordsForm& form : case_.payloads.forms) {
    PayloadMemory memory{};
    memory.in =
        static_cast<std::uint8_t*>(context_.arena.take(static_cast<std::size_t>(bytesOf(form, case_.tokensMax))));
    memory.outBytes = payloadOutput(form, route, offsets).bytes();
    if (case_.window) {
      void* out = nullptr;
      EXPECT_EQ(moeMemAlloc(context_.comm, memory.outBytes, &out), moeSuccess) << context_.error();
      memory.out = static_cast<std::uint8_t*>(out);
    } else {
      memory.out = static_cast<std::uint8_t*>(context_.arena.take(memory.outBytes));
    }
    payloads_.push_back(memory);
  }
}

void MoeStep::freePayloads() {
  for (const PayloadMemory& memory : payloads_) {
    EXPECT_EQ(moeMemFree(context_.comm, case_.window ? memory.out : nullptr), moeSuccess) << context_.error();
  }
}

void MoeStep::preparePayloads() {
  int first = 0;
  const int tokens = input().tokens;
  for (std::size_t i = 0; i < payloads_.size(); ++i) {
    const WordsForm& form = case_.payloads.forms[i];
    const bool columns = case_.payloads.columns;
    std::vector<std::uint32_t> given(static_cast<std::size_t>(bytesOf(form, tokens) / 4), 0xdeadbeef);
    for (int t = 0; t < tokens; ++t) {
      for (int w = 0; w < form.words; ++w) {
        const int at = columns ? w * (tokens + form.pad) + t : t * (form.words + form.pad) + w;
        given[static_cast<std::size_t>(at)] = payloadWord(context_.rank, t, first + w);
      }
    }
    context_.arena.upload(payloads_[i].in, given.data(), given.size() * 4);
    const std::vector<std::uint8_t> poison(payloads_[i].outBytes, 0xA5);
    context_.arena.upload(payloads_[i].out, poison.data(), poison.size());
    first += form.words;
  }
}

// Strides of words without gaps are left to the library.
std::vector<moePayload_t> MoeStep::payloadArgs() const {
  std::vector<moePayload_t> made;
  const std::int64_t tokens = input().tokens;
  if (case_.sideBytes > 0) {
    moePayload_t payload = MOE_PAYLOAD_INITIALIZER;
    payload.outLayout = moePayloadArray;
    payload.bytes = case_.sideBytes;
    payload.in = tokens > 0 ? side_ : nullptr;
    payload.out = outSide_;
    made.push_back(payload);
  }
  const bool fixed = hasFixedRows(static_cast<Layout>(case_.layout));
  const std::int64_t rows = fixed ? std::int64_t{context_.nranks} * bound() : rowsMax_;
  for (std::size_t i = 0; i < payloads_.size(); ++i) {
    const WordsForm& form = case_.payloads.forms[i];
    moePayload_t payload = MOE_PAYLOAD_INITIALIZER;
    payload.bytes = form.words * 4;
    payload.outLayout = form.layout;
    payload.in = tokens > 0 ? payloads_[i].in : nullptr;
    payload.out = payloads_[i].out;
    if (case_.payloads.columns) {
      payload.inRowStride = 4;
      payload.inWordStride = (tokens + form.pad) * 4;
    } else if (form.pad != 0) {
      payload.inRowStride = (form.words + form.pad) * std::int64_t{4};
    }
    if (form.pad != 0 && form.layout == moeScalesRowMajor)
      payload.outRowStride = (form.words + form.pad) * std::int64_t{4};
    if (form.pad != 0 && form.layout == moeScalesTokenContiguous) payload.outWordStride = (rows + form.pad) * 4;
    made.push_back(payload);
  }
  return made;
}

bool MoeStep::asksForBlocks() const {
  if (case_.layout != moeLayoutExpertMajor) return false;
  const std::vector<WordsForm>& forms = case_.payloads.forms;
  return (case_.cast != moeCastNone && case_.scales == moeScales128x4) ||
         std::any_of(forms.begin(), forms.end(), [](const WordsForm& form) { return form.layout == moeScales128x4; });
}

void MoeStep::checkPayloads() {
  int first = 0;
  for (std::size_t i = 0; i < payloads_.size(); ++i) {
    const WordsForm& form = case_.payloads.forms[i];
    WordsOutput expected = payloadOutput(form, reference_->config, arrivals().expertOffsets);
    expected.expectPads(arrivals(), (case_.padding & moePadRows) != 0);
    forEachLayoutRow([&](const ArrivedToken& arrived, std::int64_t at) {
      std::vector<std::uint32_t> words;
      for (int w = 0; w < form.words; ++w) words.push_back(payloadWord(arrived.source, arrived.token, first + w));
      expected.expect(at, words);
    });
    if ((case_.padding & moePadRows) != 0 && form.layout != moeScales128x4) {
      for (const std::int64_t row : emptyRows())
        expected.expect(row, std::vector<std::uint32_t>(static_cast<std::size_t>(form.words), 0));
    }
    EXPECT_TRUE(expected.isRight(context_.arena.get(payloads_[i].out, expected.bytes()).data()))
        << "payload " << i << "; " << case_.name() << " iteration " << iteration_;
    if (form.layout == moeScales128x4 && asksForBlocks()) {
      const std::vector<int> blocks = expected.blockOffsets();
      EXPECT_EQ(context_.arena.get(outBlocks_, blocks.size()), blocks) << case_.name();
    }
    first += form.words;
  }
}

}  // namespace moe::test
