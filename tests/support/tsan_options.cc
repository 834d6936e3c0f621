// Options of the thread sanitizer for tests of transports.
extern "C" {

const char* __tsan_default_options();       // NOLINT(bugprone-reserved-identifier): the sanitizer's name
const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier): the sanitizer's name

// For tests that send from memory which others write to later. The sanitizer notes that sendmsg() has read the memory
// after the call has returned; by then the peer's answer, after which the memory may be written, can be there: a race
// that is none.
[[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "intercept_send=0";
}

// A WQE was written by a step, and is read by the owner of its completion: what lies between is the adapter, which the
// sanitizer does not see.
[[gnu::visibility("default")]] const char* __tsan_default_suppressions() {
  return "race:moe::mlx5::endOfWqe\n";
}

}  // extern "C"
