// How the threads that serve an adapter run: where, and how often they look.
#pragma once

#include <chrono>
#include <vector>

namespace moe::verbs {

// Moves the calling thread to these processors, as far as the process may run there. Only for speed.
void runNear(const std::vector<int>& cpus);

// How long to rest after `idle` without anything to do: not at all at first, as a step posts many puts in a row; then
// ever longer, so that a rank that computes costs little.
std::chrono::microseconds restAfter(std::chrono::nanoseconds idle);

// Rests as long, of no length: gives the processor away.
void rest(std::chrono::microseconds pause);

}  // namespace moe::verbs
