// The words that a combine waits for before it reads rows.
#pragma once

#include "comm/handle/handle.h"

namespace moe {

void checkReady(const Handle& handle, const moeCombineArgs_t& args);
// Where each row has its word.
ReadyWords readyWords(const Handle& handle, const moeCombineArgs_t& args);
// At least so many words are read. Only the device knows how many blocks EXPERT_MAJOR has: of those it is one.
std::int64_t readyWordCount(const Handle& handle, const moeCombineArgs_t& args);

}  // namespace moe
