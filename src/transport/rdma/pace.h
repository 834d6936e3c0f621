// Where the threads that serve an adapter run, and how often they look.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace moe::verbs {

// The threads of an adapter run on those of its near processors that the calling thread may use.
struct ThreadPlace {
  std::vector<int> cpus;  // empty: anywhere
  bool refused = false;   // near processors are known, but this thread may use none of them
  std::string text;       // such as "on processors 0-3,8"
};
ThreadPlace placeNear(const std::vector<int>& near);

// Moves the calling thread to these processors, if there are any.
void runOn(const std::vector<int>& cpus);

// {0, 1, 2, 8} is "0-2,8", as in local_cpulist of sysfs.
std::string cpuListText(const std::vector<int>& cpus);

// How long to pause after `idle` without anything to do. At first not at all, because a step posts many puts in a row.
// Later ever longer, so that a rank that computes pays little.
std::chrono::microseconds restAfter(std::chrono::nanoseconds idle);

// Pauses that long. A pause of no length yields the processor.
void rest(std::chrono::microseconds pause);

}  // namespace moe::verbs
