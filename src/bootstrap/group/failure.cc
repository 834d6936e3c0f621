#include "bootstrap/group/failure.h"

#include <algorithm>

#include "bootstrap/net/frame.h"
#include "bootstrap/net/wire.h"

namespace moe::bootstrap {

std::vector<std::uint8_t> encodeReason(moeResult_t result, const std::string& sentence) {
  Writer payload;
  payload.u32(static_cast<std::uint32_t>(result));
  payload.text(std::string_view(sentence).substr(0, kSentenceBytesMax));
  return payload.take();
}

Failure decodeReason(int rank, std::span<const std::uint8_t> payload) {
  Reader in(payload);
  const auto result = static_cast<moeResult_t>(std::clamp<std::uint32_t>(in.u32(), 1, moeInternalError));
  const auto text = in.rest();
  std::string sentence(text.begin(), text.end());
  const auto isControl = [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; };
  std::replace_if(sentence.begin(), sentence.end(), isControl, '?');
  return {rank, result, std::move(sentence)};
}

}  // namespace moe::bootstrap
