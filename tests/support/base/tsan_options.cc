// Options of ThreadSanitizer for tests of transports.
extern "C" {

const char* __tsan_default_options();       // NOLINT(bugprone-reserved-identifier): the sanitizer's name
const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier): the sanitizer's name

// For tests that send from memory that is written again later. ThreadSanitizer notes only after sendmsg() has returned
// that the call has read the memory. By then the peer's answer, which allows the next write, may have arrived.
// ThreadSanitizer would then report a race that does not exist.
[[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "intercept_send=0";
}

// A step writes a WQE, and the owner of its completion reads it. The adapter, which ThreadSanitizer cannot see, orders
// the two.
[[gnu::visibility("default")]] const char* __tsan_default_suppressions() {
  return "race:moe::mlx5::endOfWqe\n";
}

}  // extern "C"
