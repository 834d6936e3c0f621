// Options of the thread sanitizer for tests of transports.
extern "C" {

const char* __tsan_default_options();       // NOLINT(bugprone-reserved-identifier): the sanitizer's name
const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier): the sanitizer's name

// For tests that send from memory which others write later. The sanitizer notes that sendmsg() has read the memory only
// after the call has returned. By then the peer's answer, after which the memory may be written, can be there. It
// reports a race where there is none.
[[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "intercept_send=0";
}

// A step writes a WQE, and the owner of its completion reads it. The adapter lies in between, which the sanitizer does
// not see.
[[gnu::visibility("default")]] const char* __tsan_default_suppressions() {
  return "race:moe::mlx5::endOfWqe\n";
}

}  // extern "C"
